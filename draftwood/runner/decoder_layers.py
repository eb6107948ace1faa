"""Decoder layers like Llama's, recognised by their modules."""

from dataclasses import dataclass
from typing import Final

from torch import nn

ATTENTION: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP: Final = ("gate_proj", "up_proj", "down_proj")
NORMS: Final = ("input_layernorm", "post_attention_layernorm")
HEAD_NORMS: Final = ("q_norm", "k_norm")


@dataclass(frozen=True)
class DecoderLayer:
    """The modules of a decoder layer.

    Attributes:
        module: the layer.
        attention: with ``head_dim``, ``scaling`` and ``layer_idx``, and the first four linears.
        mlp: with the other three.
        activation: of the MLP, a SiLU.
        norms: before the attention and before the MLP.
        head_norms: of queries and of keys, or none.
    """

    module: nn.Module
    attention: nn.Module
    mlp: nn.Module
    activation: nn.Module
    norms: tuple[nn.Module, ...]
    head_norms: tuple[nn.Module, ...]


def decoder_layer(layer: nn.Module) -> DecoderLayer | None:
    """The modules of a layer; None if it has others than Llama's or Qwen3's.

    What a layer computes is not known from its modules: compare before computing in its place.
    """
    modules = layer._modules
    attention, mlp = modules.get("self_attn"), modules.get("mlp")
    if attention is None or mlp is None or set(modules) != {"self_attn", "mlp", *NORMS}:
        return None
    within = set(attention._modules)
    if within not in ({*ATTENTION}, {*ATTENTION, *HEAD_NORMS}):
        return None
    activation = mlp._modules.get("act_fn")
    if set(mlp._modules) != {*MLP, "act_fn"} or activation is None or not _is_silu(activation):
        return None
    if any(each._parameters or each._buffers for each in (layer, attention, mlp)):
        return None
    if not all(hasattr(attention, name) for name in ("head_dim", "scaling", "layer_idx")):
        return None
    if any("forward" in each.__dict__ for each in (attention, mlp, activation)):
        return None
    norms = [modules[name] for name in NORMS]
    head_norms = [attention._modules[name] for name in HEAD_NORMS if name in within]
    linears = [attention._modules[name] for name in ATTENTION]
    linears += [mlp._modules[name] for name in MLP]
    if any(each is None for each in (*norms, *head_norms, *linears)):
        return None
    return DecoderLayer(layer, attention, mlp, activation, tuple(norms), tuple(head_norms))  # type: ignore[arg-type]


def _is_silu(module: nn.Module) -> bool:
    return type(module) is nn.SiLU or type(module).__name__ == "SiLUActivation"
