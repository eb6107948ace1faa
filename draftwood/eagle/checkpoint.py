"""EAGLE-3 heads on disk: reading both public layouts, checking every tensor, writing one.

The layouts name the layer ``midlayer.*`` (original) or ``layers.0.*`` (speculators); which one a
file has is told by its names, independently of its ``config.json``, since converted checkpoints mix
them. Files are ``model.safetensors`` (also in shards) or a ``pytorch_model.bin`` that
``torch.load(weights_only=True)`` accepts; nothing that could run code is ever opened. What a tensor
must look like is asked of the head itself, built without memory.
"""

import json
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draftwood.eagle.config import Eagle3Config, read_config, write_config
from draftwood.eagle.head import Eagle3Head
from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetInfo

_CONFIG = "config.json"
_SAFE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = "pytorch_model.bin"
_EMBEDDING = "embed_tokens.weight"
# Copies of the target's own weights that training leaves behind, and tables computed from config.
_IGNORED_STARTS = ("verifier_lm_head.", "verifier_norm.")
_IGNORED_ENDS = ("rotary_emb.inv_freq",)
# What torch's restricted unpickler raises on files of other kinds, and on damaged ones.
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


def load_head(
    name: str | Path,
    target: TargetInfo,
    embedding: nn.Module | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Eagle3Head:
    """Load an EAGLE-3 head for a target, in evaluation mode.

    Args:
        name: a directory, or else a hub id.
        target: the target the head will draft for; its sizes are held against the checkpoint's.
        embedding: the target's input embedding, used where the checkpoint brings none. Without
            one, :meth:`Eagle3Head.set_input_embeddings` must follow.
        dtype: of the weights; None: the target's.
        device: where the weights go; None: the target's.

    Raises:
        DraftwoodError: there is no such checkpoint, or it is not an EAGLE-3 head for this target;
            names the tensor and both shapes.
    """
    directory = _locate(str(name))
    tensors = _canonical(_read_tensors(directory))
    raw = _read_json(directory / _CONFIG)
    config = read_config(raw, target, own_embedding=_EMBEDDING in tensors)
    with torch.device("meta"):
        head = Eagle3Head(config)
    _check_tensors(tensors, head)
    tensors |= _vocabulary(tensors, config)
    dtype, device = dtype or target.dtype, torch.device(device or target.device)
    placed = {
        key: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
        for key, tensor in tensors.items()
    }
    head.load_state_dict(placed, assign=True)
    head.rotary_emb = LlamaRotaryEmbedding(config).to(device)
    if embedding is not None and not config.own_embedding:
        head.set_input_embeddings(embedding)
    head.train(mode=False)
    return head


def save_head(head: Eagle3Head, directory: Path) -> Path:
    """Write a head in the original layout; returns ``directory``, which :func:`load_head` reads."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous().cpu() for name, tensor in head.state_dict().items()}
    save_file(tensors, directory / _SAFE, metadata={"format": "pt"})
    fields = write_config(head.config) | {"torch_dtype": str(head.dtype).removeprefix("torch.")}
    (directory / _CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    return directory


def _locate(name: str) -> Path:
    if Path(name).is_dir():
        return Path(name)
    try:
        return Path(
            snapshot_download(name, allow_patterns=[_CONFIG, "*.safetensors", _INDEX, _PICKLED])
        )
    except (OSError, ValueError) as error:
        reason = _first_line(error)
        raise DraftwoodError(
            f"cannot load head {name!r} (no such directory here; a hub id needs a network): "
            f"{reason}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DraftwoodError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise DraftwoodError(f"{path} holds no JSON object")
    return found


def _read_tensors(directory: Path) -> dict[str, torch.Tensor]:
    if (directory / _SAFE).is_file():
        return _read_safe(directory / _SAFE)
    if (directory / _INDEX).is_file():
        shards = set(_read_json(directory / _INDEX).get("weight_map", {}).values())
        found: dict[str, torch.Tensor] = {}
        for shard in sorted(shards):
            if Path(shard).name != shard:
                raise DraftwoodError(f"{directory / _INDEX} names {shard!r}, not a file beside it")
            found |= _read_safe(directory / shard)
        return found
    if (directory / _PICKLED).is_file():
        return _read_pickled(directory / _PICKLED)
    raise DraftwoodError(
        f"{directory} has no weights; give one with {_SAFE}, {_INDEX} or {_PICKLED}"
    )


def _read_safe(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DraftwoodError(f"cannot read {path}: {error}") from error


def _read_pickled(path: Path) -> dict[str, torch.Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except _NOT_TENSORS as error:
        reason = _first_line(error)
        raise DraftwoodError(f"cannot read {path} as plain tensors: {reason}") from error
    if not isinstance(found, dict) or not all(isinstance(t, torch.Tensor) for t in found.values()):
        raise DraftwoodError(f"{path} holds something other than named tensors")
    return found


def _canonical(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors under their names in the head, without those that are not needed."""
    layers = {
        start for start in ("midlayer.", "layers.0.") for name in tensors if name.startswith(start)
    }
    if len(layers) != 1:
        kinds = "both" if layers else "neither"
        raise DraftwoodError(
            f"the checkpoint has {kinds} midlayer.* (original layout) and layers.0.* (speculators "
            "layout) tensors; give an EAGLE-3 head, which has one of them"
        )
    start = layers.pop()
    return {
        "midlayer." + name.removeprefix(start) if name.startswith(start) else name: tensor
        for name, tensor in tensors.items()
        if not name.startswith(_IGNORED_STARTS) and not name.endswith(_IGNORED_ENDS)
    }


def _check_tensors(tensors: Mapping[str, torch.Tensor], head: Eagle3Head) -> None:
    expected = head.state_dict()
    unknown = sorted(tensors.keys() - expected.keys())
    if unknown:
        raise DraftwoodError(
            f"the checkpoint has tensors that an EAGLE-3 head has not: {', '.join(unknown)}; it is "
            "of another kind or a variant of it"
        )
    implied = {"t2d"}
    if head.config.draft_vocab_size == head.config.vocab_size:
        implied.add("d2t")
    missing = sorted(expected.keys() - tensors.keys() - implied)
    if missing:
        raise DraftwoodError(f"the checkpoint lacks {', '.join(missing)}")
    for name, tensor in tensors.items():
        found, wanted = list(tensor.shape), list(expected[name].shape)
        if found != wanted:
            raise DraftwoodError(
                f"{name} is {found} in the checkpoint, but its config.json and the target call for "
                f"{wanted}"
            )
        if not _same_kind(tensor.dtype, expected[name].dtype):
            kind = str(expected[name].dtype).removeprefix("torch.")
            raise DraftwoodError(f"{name} holds {tensor.dtype} in the checkpoint; expected {kind}")


def _same_kind(found: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether both are of floating point, both booleans, or both integers."""
    if found.is_floating_point or wanted.is_floating_point:
        return found.is_floating_point == wanted.is_floating_point
    return (found == torch.bool) == (wanted == torch.bool)


def _vocabulary(
    tensors: Mapping[str, torch.Tensor], config: Eagle3Config
) -> dict[str, torch.Tensor]:
    """``d2t`` and ``t2d``, checked against each other; where absent, as they follow."""
    rows, drafted = config.vocab_size, torch.arange(config.draft_vocab_size)
    d2t = tensors["d2t"].long() if "d2t" in tensors else torch.zeros_like(drafted)
    ids = drafted + d2t
    wrong = torch.nonzero((ids < 0) | (ids >= rows)).flatten().tolist()
    if wrong:
        raise DraftwoodError(
            f"d2t maps draft id {wrong[0]} to {int(ids[wrong[0]])}, outside the target's "
            f"vocabulary of {rows}"
        )
    counts = torch.bincount(ids, minlength=rows)
    if counts.max() > 1:
        raise DraftwoodError(f"d2t maps two draft ids to token {int(counts.argmax())}")
    mapped = counts > 0
    t2d = tensors.get("t2d", mapped)
    if not torch.equal(t2d, mapped):
        token = int(torch.nonzero(t2d != mapped)[0])
        says = ("cannot", "can") if mapped[token] else ("can", "cannot")
        raise DraftwoodError(
            f"t2d says that token {token} {says[0]} be drafted, d2t that it {says[1]}"
        )
    return {"d2t": d2t, "t2d": t2d}
