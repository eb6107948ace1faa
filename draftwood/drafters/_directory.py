"""The directory of a drafter's weights: found here or on the hub, and read without running code.

Weights are safetensors, in one file or in shards, or a pickle that
``torch.load(weights_only=True)`` accepts.
"""

import pickle
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open

from draftwood.errors import DraftwoodError, first_line
from draftwood.files import read_json

CONFIG = "config.json"
SAFE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = "pytorch_model.bin"
# Errors of torch's restricted unpickler on foreign or damaged files.
_NOT_TENSORS = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    struct.error,
    pickle.UnpicklingError,
)


@dataclass(frozen=True)
class DrafterDirectory:
    """A directory with a ``config.json`` and weights.

    Attributes:
        path: of the directory.
        noun: what it should hold, with its article, for messages: ``"an EAGLE-3 head"``.
    """

    path: Path
    noun: str

    def config(self) -> dict[str, Any]:
        """The content of ``config.json``.

        Raises:
            DraftwoodError: there is none, or it holds no JSON object.
        """
        return self._read_object(self.path / CONFIG)

    def tensors(
        self,
        safe: Sequence[str] = (SAFE,),
        pickled: Sequence[str] = (PICKLED,),
        within: re.Pattern[str] | None = None,
    ) -> dict[str, torch.Tensor]:
        """The tensors of the first of these files that exists; a safetensors index comes second.

        Args:
            safe: names of safetensors files.
            pickled: names of pickles.
            within: beginning of the names of a drafter's tensors among those of a whole model: if
                some begin with it, no others are read from safetensors.

        Raises:
            DraftwoodError: there is no such file, or it holds other things than named tensors.
        """
        for name in safe:
            if (self.path / name).is_file():
                return _read_safe([self.path / name], within)
        if (self.path / INDEX).is_file():
            return _read_safe(self._shards(), within)
        for name in pickled:
            if (self.path / name).is_file():
                return self._read_pickled(self.path / name)
        names = [*safe, INDEX, *pickled]
        raise DraftwoodError(
            f"{self.path} has no weights; give one with {', '.join(names[:-1])} or {names[-1]}"
        )

    def _read_object(self, path: Path) -> dict[str, Any]:
        found = read_json(path)
        if not isinstance(found, dict):
            raise DraftwoodError(f"{path} holds no JSON object; give a directory with {self.noun}")
        return found

    def _shards(self) -> list[Path]:
        index = self.path / INDEX
        shards = sorted(set(self._read_object(index).get("weight_map", {}).values()))
        for shard in shards:
            if Path(shard).name != shard:
                raise DraftwoodError(
                    f"{index} names {shard!r}, not a file beside it; download the weights again"
                )
        return [self.path / shard for shard in shards]

    def _read_pickled(self, path: Path) -> dict[str, torch.Tensor]:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except _NOT_TENSORS as error:
            reason = first_line(error)
            raise DraftwoodError(f"cannot read {path} as plain tensors: {reason}") from error
        tensors = isinstance(found, dict) and all(
            isinstance(each, torch.Tensor) for each in found.values()
        )
        if not tensors:
            raise DraftwoodError(f"{path} holds other things than named tensors; give {self.noun}")
        return dict(found)


def located(name: str, noun: str, files: Sequence[str] = (PICKLED,)) -> DrafterDirectory:
    """The directory of a name: here, or downloaded from the hub.

    Args:
        name: a directory, or else a hub id.
        noun: see :class:`DrafterDirectory`.
        files: that are downloaded beside the configuration and safetensors.

    Raises:
        DraftwoodError: there is no such directory, and the hub has none or cannot be reached.
    """
    if not name:
        verb = "is" if noun.startswith(("a ", "an ")) else "are"
        raise DraftwoodError(
            f"no {_bare(noun)} {verb} named: give a directory or a hub id, as with --head"
        )
    if Path(name).is_dir():
        return DrafterDirectory(Path(name), noun)
    try:
        found = snapshot_download(name, allow_patterns=[CONFIG, "*.safetensors", INDEX, *files])
    except (OSError, ValueError) as error:
        raise DraftwoodError(
            f"cannot load {_bare(noun)} {name!r} (no such directory here; a hub id needs a "
            f"network): {first_line(error)}"
        ) from error
    return DrafterDirectory(Path(found), noun)


def check_tensors(
    tensors: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], noun: str
) -> None:
    """Check names, shapes and kinds of a checkpoint's tensors.

    Args:
        tensors: of the checkpoint.
        expected: those of the module, which may be on the meta device.
        noun: see :class:`DrafterDirectory`.

    Raises:
        DraftwoodError: a tensor is missing, unknown, of another shape, or quantised.
    """
    missing = sorted(expected.keys() - tensors.keys())
    unknown = sorted(tensors.keys() - expected.keys())
    if missing or unknown:
        raise DraftwoodError(
            f"the checkpoint lacks {', '.join(missing) or 'nothing'} and has "
            f"{', '.join(unknown) or 'nothing'} besides; give {noun} that is complete"
        )
    for name, tensor in tensors.items():
        found, wanted = list(tensor.shape), list(expected[name].shape)
        if found != wanted:
            raise DraftwoodError(
                f"{name} is {found} in the checkpoint, but its configuration and the target call "
                f"for {wanted}; give {noun} made for this target"
            )
        if tensor.is_floating_point() != expected[name].is_floating_point():
            raise DraftwoodError(
                f"{name} holds {tensor.dtype} in the checkpoint; give {noun}, not quantised"
            )


def add_biases(tensors: dict[str, torch.Tensor], names: Iterable[str]) -> None:
    """Add the biases of these names that a checkpoint lacks: a zero for each row of the weight."""
    for name in names:
        weight = tensors.get(name.removesuffix("bias") + "weight")
        if weight is not None:
            tensors.setdefault(name, weight.new_zeros(len(weight)))


def _bare(noun: str) -> str:
    """A noun without its article."""
    return noun.removeprefix("an ").removeprefix("a ")


def _read_safe(paths: Sequence[Path], within: re.Pattern[str] | None) -> dict[str, torch.Tensor]:
    names: dict[Path, list[str]] = {}
    for path in paths:
        with _opened(path) as file:
            names[path] = [*file.keys()]
    if within is not None:
        own = {path: [*filter(within.match, each)] for path, each in names.items()}
        names = own if any(own.values()) else names
    found: dict[str, torch.Tensor] = {}
    for path, wanted in names.items():
        with _opened(path) as file:
            found |= {name: file.get_tensor(name) for name in wanted}
    return found


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A safetensors file, within a block that reads it."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise DraftwoodError(f"cannot read {path}: {error}") from error
