"""A model's weights as a GGUF file: written whole or not at all, and gone with the model.

A file is of use to one process only, so it lies in a temporary directory of its own (``TMPDIR``
says where): whoever measures has the model's size twice on disk for as long, and nothing stale can
be found by a later run. It is written once for a model, however many peers decode from it, and
removed when the model is, or when the interpreter exits; only a process that is killed leaves it
behind.
"""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from draftwood.bench.llamacpp import layout
from draftwood.bench.llamacpp.library import need
from draftwood.errors import DraftwoodError

_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_FILES: WeakKeyDictionary[PreTrainedModel, Path] = WeakKeyDictionary()


def file_of(model: PreTrainedModel) -> Path:
    """Where the model's weights lie as GGUF; written now unless they have been.

    Raises:
        DraftwoodError: ``gguf`` is not installed, the layout cannot hold the model, or the file
            cannot be written.
    """
    if model not in _FILES:
        directory = Path(tempfile.mkdtemp(prefix="draftwood-gguf-"))
        weakref.finalize(model, shutil.rmtree, directory, ignore_errors=True)
        path = directory / "model.gguf"
        write(model, path)
        _FILES[model] = path
    return _FILES[model]


def write(model: PreTrainedModel, path: Path) -> None:
    """Write the model's weights, in its own precision, to a GGUF file of little-endian numbers.

    Args:
        model: a Llama on any device; one tensor at a time is copied.
        path: replaced in one step if there is such a file.

    Raises:
        DraftwoodError: ``gguf`` is not installed, the layout cannot hold the model, or the file
            cannot be written.
    """
    gguf = need("gguf")
    layout.check(model)
    part = path.with_name(f".{path.name}.part")
    writer = gguf.GGUFWriter(part, layout.ARCHITECTURE)
    try:
        _fill(writer, model, gguf.GGMLQuantizationType)
        writer.close()
        part.replace(path)
    except OSError as error:
        raise DraftwoodError(
            f"cannot write the weights for llama.cpp to {path.parent}: {error.strerror or error}; "
            "TMPDIR names another place"
        ) from error
    finally:
        writer.close()
        part.unlink(missing_ok=True)


def _fill(writer: Any, model: PreTrainedModel, types: Any) -> None:
    for key, value in layout.metadata(model).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_float32(key, value)
    held = list(layout.weights(model))
    for weight in held:
        bits = _bits(torch.empty(0, dtype=weight.dtype))
        size = int(torch.Size(weight.shape).numel()) * bits.itemsize
        kind = types[_TYPES[weight.dtype]]
        writer.add_tensor_info(weight.name, weight.shape, bits.dtype, size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for weight in held:
        writer.write_tensor_data(_bits(weight.data()))


def _bits(tensor: torch.Tensor) -> Any:
    """As numpy, which has no bfloat16: such numbers come as the integers of the same bits."""
    plain = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    return plain.numpy()
