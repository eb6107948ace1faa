"""Checkpoints of Hydra heads, in the layout in which they are published (ankner's).

``hydra_lm_head.pt`` has, for head i, ``hydra_mlp.{i}.{j}.linear`` and, in its first layer,
``hydra_mlp.{i}.{j}.res_connection``, and the output ``hydra_lm_head.{i}.1``. Between them are
dropouts, which have numbers and no tensors. Heads without a prefix layer (``mlp``) have no
dropouts, and ``hydra_lm_head.{i}``. The prefix layer is ``prefix_embeding_layer`` (sic). Copies of
the target's embedding are not read.
"""

from collections.abc import Mapping

import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draftwood.drafters._directory import PICKLED, SAFE, add_biases, check_tensors, located
from draftwood.drafters.hydra.config import NOUN, HydraConfig, read_config
from draftwood.drafters.hydra.heads import HydraHeads
from draftwood.protocols import Target

_SAFE = "hydra_lm_head.safetensors"
_PICKLED = "hydra_lm_head.pt"
_UNUSED = ("input_embed_fn.weight", "prefix_embeding_layer.embed_tokens.weight")


def load_hydra(name: str, target: Target, dtype: torch.dtype) -> HydraHeads:
    """Load Hydra heads for a target, in evaluation mode and on its device.

    Raises:
        DraftwoodError: there is no such checkpoint, or it has no Hydra heads of a variant that is
            read, made for this target; the message names the tensor.
    """
    directory, info = located(name, NOUN, (PICKLED, _PICKLED)), target.info
    config = read_config(directory.config(), info)
    raw = directory.tensors((_SAFE, SAFE), (_PICKLED, PICKLED))
    tensors = {
        name: tensor
        for name, tensor in raw.items()
        if name not in _UNUSED and not name.endswith("rotary_emb.inv_freq")
    }
    heads = _empty(config, tensors, info.hidden_size, info.vocab_size)
    empty = heads.state_dict()
    names = {_published(name, config): name for name in empty}
    # Some checkpoints lack those of the outputs.
    add_biases(tensors, [given for given, name in names.items() if name.endswith("output.bias")])
    check_tensors(tensors, {given: empty[name] for given, name in names.items()}, NOUN)
    placed = {names[given]: each.to(info.device, dtype) for given, each in tensors.items()}
    heads.load_state_dict(placed, assign=True)
    if heads.prefix is not None and config.prefix is not None:
        heads.prefix.rotary_emb = LlamaRotaryEmbedding(config.prefix).to(info.device)
    heads.share_embedding(target.embedding())
    heads.train(mode=False)
    return heads


def _empty(
    config: HydraConfig, tensors: Mapping[str, torch.Tensor], width: int, vocabulary: int
) -> HydraHeads:
    """The heads without weights, with as many outputs as the checkpoint has."""
    output = tensors.get(_published("heads.0.output.weight", config))
    with torch.device("meta"):
        return HydraHeads(config, width, vocabulary if output is None else len(output))


def _published(name: str, config: HydraConfig) -> str:
    """The published name of a tensor of :class:`HydraHeads`."""
    part, head, *rest = name.split(".")
    if part == "prefix":
        return ".".join(["prefix_embeding_layer", head, *rest])
    kind, what = rest[0], rest[-1]
    dropouts = config.prefix is not None
    if kind == "output":
        return f"hydra_lm_head.{head}.1.{what}" if dropouts else f"hydra_lm_head.{head}.{what}"
    layer = int(rest[1]) + 1 if kind == "blocks" else 0
    number = 2 * layer + 1 if dropouts else layer
    return f"hydra_mlp.{head}.{number}.{'res_connection' if kind == 'skip' else 'linear'}.{what}"
