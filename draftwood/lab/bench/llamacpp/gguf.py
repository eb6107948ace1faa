"""Writes a Llama of transformers as a GGUF file of architecture ``llama``.

Only a ``LlamaForCausalLM`` that the architecture can represent: anything else is refused, because
llama.cpp would ignore it without a message.

Names, keys and types are those of the specification (ggml's docs/gguf.md). Two things
differ from the checkpoint. llama.cpp rotates dimensions (2i, 2i + 1) of a head by angle i, and
transformers dimensions (i, i + d/2). So the rows of query and key projections are interleaved
within each head, which changes no dot product. If angles are scaled by constants (Llama 3's rule,
linear interpolation), the constants are written as ``rope_freqs.weight``, by which llama.cpp
divides each angle.

The file has no tokenizer (``tokenizer.ggml.model`` is ``none``): input and output are token ids.
"""

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from draftwood.errors import DraftwoodError, need
from draftwood.models.quantising import is_quantised_weight

ARCHITECTURE = "llama"
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 7, "BF16": 32}
"""``general.file_type`` of a file whose matrices have this type."""

Precision: TypeAlias = Literal["model", "q8_0", "q4_1"]
"""Types of matrices: the model's own, or llama.cpp's quantisation to 8 or to 4 bits."""

_CONSTANT_ANGLES = ("default", "linear", "llama3")
_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_DTYPES = {name: dtype for dtype, name in _TYPES.items()}
_BLOCK = 32
"""Numbers that are quantised together, within a row."""
_FILES: WeakKeyDictionary[PreTrainedModel, dict[Precision, Path]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Weight:
    """One tensor of the file.

    Attributes:
        name: name in the file.
        source: the model's tensor, ``[out, in]`` or ``[n]``, not copied.
        kind: its type in the file. Vectors are always float32, which is exact.
        heads: number of heads within which rows are interleaved; 0: rows keep their order.
    """

    name: str
    source: torch.Tensor
    kind: str
    heads: int = 0

    def data(self) -> Any:
        """Values as in the file, in numpy; bfloat16, which numpy lacks, as int16 of equal bits."""
        values = self.source.detach()
        if is_quantised_weight(values):
            values = values.dequantize()
        dtype = _DTYPES.get(self.kind)
        values = values.to("cpu", dtype or torch.float32)
        if self.heads:
            values = interleaved(values, self.heads)
        if dtype is None:
            gguf = need("gguf", "llamacpp")
            kind = gguf.GGMLQuantizationType[self.kind]
            return gguf.quants.quantize(values.contiguous().numpy(), kind)
        plain = values.view(torch.int16) if dtype == torch.bfloat16 else values
        return plain.contiguous().numpy()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        gguf = need("gguf", "llamacpp")
        numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[self.kind]]
        return int(self.source.numel() // numbers * size)


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows ``[heads * d, n]`` with each head's halves interleaved: 0, d/2, 1, d/2 + 1, ..."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.transpose(1, 2).reshape(rows, columns)


def check(model: PreTrainedModel, precision: Precision = "model") -> None:
    """Refuse a model that the file cannot represent.

    Raises:
        DraftwoodError: it is not a Llama, or it has biases, another activation, rotary angles that
            change while decoding or apply to a part of each head, or quantised weights.
    """
    if type(model) is not LlamaForCausalLM:
        raise DraftwoodError(
            "the llama.cpp peers are for LlamaForCausalLM and this target is "
            f"{type(model).__name__}: leave them out"
        )
    config = model.config
    if config.hidden_act != "silu":
        raise _unsuited(f"its activation is {config.hidden_act!r}, llama.cpp's is 'silu'")
    angles = _rope(model)["rope_type"]
    if angles not in _CONSTANT_ANGLES:
        known = ", ".join(_CONSTANT_ANGLES)
        raise _unsuited(f"its rotary angles are scaled by the rule {angles!r}, not {known}")
    if 2 * model.model.rotary_emb.inv_freq.numel() != _head_dim(model):
        raise _unsuited("its rotary angles apply to a part of each head only")
    names = _names(model)
    for name, tensor in model.state_dict().items():
        if names[name] is None:
            raise _unsuited(f"GGUF's Llama has no weight {name}")
        if tensor.dtype not in _TYPES:
            raise _unsuited(f"{name} is of {tensor.dtype}: load it unquantised")
        if is_quantised_weight(tensor) and precision == "model":
            raise _unsuited(f"{name} is quantised by torchao: give the peer weights=q8_0")
        if precision != "model" and tensor.ndim == 2 and tensor.shape[1] % _BLOCK:
            raise _unsuited(f"rows of {name} are no blocks of {_BLOCK}: give weights=model")


def metadata(
    model: PreTrainedModel, precision: Precision = "model"
) -> dict[str, str | int | float]:
    """Metadata of the file; integers become uint32, other numbers float32."""
    config = model.config
    head_dim = _head_dim(model)
    return {
        "general.file_type": FILE_TYPES[_kind(model.lm_head.weight, precision)],
        "llama.context_length": config.max_position_embeddings,
        "llama.vocab_size": config.vocab_size,
        "llama.embedding_length": config.hidden_size,
        "llama.block_count": config.num_hidden_layers,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.key_length": head_dim,
        "llama.attention.value_length": head_dim,
        "llama.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "llama.rope.dimension_count": head_dim,
        "llama.rope.freq_base": float(_rope(model)["rope_theta"]),
        "tokenizer.ggml.model": "none",
    }


def _kind(tensor: torch.Tensor, precision: Precision) -> str:
    if tensor.ndim == 1:
        return "F32"
    return _TYPES[tensor.dtype] if precision == "model" else precision.upper()


def weights(model: PreTrainedModel, precision: Precision = "model") -> Iterator[Weight]:
    """All tensors of the file; a tied embedding comes once, llama.cpp uses it for both."""
    config = model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    for name, in_file in _names(model).items():
        if in_file is not None and not (tied and name == "lm_head.weight"):
            part = name.removesuffix(".weight").rpartition(".")[2]
            tensor = model.get_parameter(name)
            yield Weight(in_file, tensor, _kind(tensor, precision), heads.get(part, 0))
    if _rope(model)["rope_type"] != "default":
        yield Weight("rope_freqs.weight", _divisors(model), "F32")


def _names(model: PreTrainedModel) -> dict[str, str | None]:
    """GGUF's name of each weight; None if its Llama has no such weight."""
    gguf = need("gguf", "llamacpp")
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    return {name: table.get_name(name, (".weight",)) for name in model.state_dict()}


def _divisors(model: PreTrainedModel) -> torch.Tensor:
    angles: torch.Tensor = model.model.rotary_emb.inv_freq.detach().to("cpu", torch.float64)
    exponents = torch.arange(0, _head_dim(model), 2, dtype=torch.float64) / _head_dim(model)
    unscaled = torch.pow(float(_rope(model)["rope_theta"]), -exponents)
    return (unscaled / angles).float()


def _rope(model: PreTrainedModel) -> dict[str, Any]:
    found: dict[str, Any] = model.config.rope_parameters
    return found


def _head_dim(model: PreTrainedModel) -> int:
    size: int = model.model.layers[0].self_attn.head_dim
    return size


def _unsuited(reason: str) -> DraftwoodError:
    return DraftwoodError(
        f"this Llama cannot be written for llama.cpp, leave its peers out: {reason}"
    )


def file_of(model: PreTrainedModel, precision: Precision = "model") -> Path:
    """GGUF file of the model's weights, written on the first call and deleted with the model.

    Raises:
        DraftwoodError: ``gguf`` is not installed, the file cannot represent the model, or it cannot
            be written.
    """
    files = _FILES.setdefault(model, {})
    if precision not in files:
        directory = Path(tempfile.mkdtemp(prefix="draftwood-gguf-"))
        weakref.finalize(model, shutil.rmtree, directory, ignore_errors=True)
        path = directory / "model.gguf"
        write(model, path, precision)
        files[precision] = path
    return files[precision]


def write(model: PreTrainedModel, path: Path, precision: Precision = "model") -> None:
    """Write the model's weights to a little-endian GGUF file.

    Args:
        model: a Llama on any device; one tensor at a time is copied.
        path: file to write; nothing is left of it if that fails.
        precision: of the matrices.

    Raises:
        DraftwoodError: ``gguf`` is not installed, the file cannot represent the model, or it cannot
            be written.
    """
    gguf = need("gguf", "llamacpp")
    check(model, precision)
    try:
        with closing(gguf.GGUFWriter(path, ARCHITECTURE)) as writer:
            _fill(writer, model, precision, gguf.GGMLQuantizationType)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise DraftwoodError(
            f"cannot write the weights for llama.cpp to {path.parent}: {error.strerror or error}; "
            "set TMPDIR to another directory"
        ) from error


def _fill(writer: Any, model: PreTrainedModel, precision: Precision, types: Any) -> None:
    for key, value in metadata(model, precision).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_float32(key, value)
    found = list(weights(model, precision))
    for weight in found:
        shape, kind = tuple(weight.source.shape), types[weight.kind]
        # numpy's dtype counts only without a type of the file.
        writer.add_tensor_info(weight.name, shape, np.float32, weight.size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for weight in found:
        writer.write_tensor_data(weight.data())
