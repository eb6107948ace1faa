"""int8 weights for the linears of a model, by torchao."""

from importlib import import_module
from typing import Any

from torch import nn

from draftwood.errors import DraftwoodError


def quantise_int8(model: Any) -> None:
    """Replace the weights of linears by an int8 for each and a scale for each output.

    Activations, norms and embeddings keep the model's dtype, and so do the time steps of Mamba-1,
    whose layers multiply this weight themselves.

    Raises:
        DraftwoodError: torchao is not installed.
    """
    torchao = check_int8()
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig(), filter_fn=_quantised)


def check_int8() -> Any:
    """The library that quantises, to be asked before a model is loaded.

    Raises:
        DraftwoodError: torchao is not installed.
    """
    try:
        return import_module("torchao.quantization")
    except ImportError as error:
        raise DraftwoodError("int8 weights need torchao: pip install 'draftwood[int8]'") from error


def _quantised(module: nn.Module, name: str) -> bool:
    """Whether a module of this name gets int8 weights."""
    return isinstance(module, nn.Linear) and name.rpartition(".")[2] != "dt_proj"


def is_quantised(model: Any) -> bool:
    """Whether a linear of the model has int8 weights of torchao."""
    return any(map(is_quantised_weight, model.parameters()))


def is_quantised_weight(weight: Any) -> bool:
    """Whether a weight is torchao's int8."""
    kind = type(weight)
    return kind.__name__ == "Int8Tensor" and kind.__module__.startswith("torchao.")
