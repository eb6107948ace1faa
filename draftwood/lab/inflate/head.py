"""Inflates an EAGLE-3 head of a small Llama, so that it drafts the same for the inflated Llama.

Notation and rules are those of :mod:`draftwood.lab.inflate.weights`. What a head has besides a
layer:

- ``fc`` reads the target's hidden states at the taps, of D channels each and zero after the first
  d. Its columns of tap i begin at iD; rows and columns outside are zero, and so is the rest of h.
- The first layer's queries, keys and values read the embedding and h, of which each has D channels.
- Norms of the taps, one by one or joined, are over D or taps * D channels: the same factor.
- A table of its own (``embed_tokens``, ``lm_head``) gets columns of zeros, like the target's.

The taps keep their numbers, because additional layers of the target come last.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draftwood import models
from draftwood.drafters.eagle3.checkpoint import load_head
from draftwood.drafters.eagle3.config import Eagle3Config
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError
from draftwood.lab.inflate.model import check_rotary, shape_of
from draftwood.lab.inflate.shapes import LlamaShape, check_fits
from draftwood.lab.inflate.weights import layer_weights, norm, norm_scale, widened
from draftwood.protocols import TargetInfo

_TABLES = ("d2t", "t2d")


def source_head(name: str, source: LlamaForCausalLM) -> Eagle3Head:
    """Load the head of a small model, in float32 and on its device.

    Args:
        name: a shipped head, a directory or a hub id.
        source: the small model, float32; the head shares its embedding and ``lm_head``.

    Raises:
        DraftwoodError: there is no such head, or it is none of EAGLE-3 for this model.
    """
    config = source.config
    info = TargetInfo(
        vocab_size=config.vocab_size,
        context_limit=config.max_position_embeddings,
        layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        device=source.device,
        dtype=torch.float32,
    )
    embedding, output = source.get_input_embeddings(), source.lm_head
    return load_head(models.location(name), info, embedding, output, torch.float32)


def head_shape(config: Eagle3Config, large: LlamaShape) -> LlamaShape:
    """The shape of a head for a target of shape ``large``: the target's, with the head's layers.

    Args:
        config: the small head's.
        large: the inflated target's shape.

    Raises:
        DraftwoodError: such a head cannot be inflated, or does not fit into the shape.
    """
    if config.hidden_size != config.target_hidden_size:
        raise DraftwoodError(
            f"the head is {config.hidden_size} wide and reads hidden states of width "
            f"{config.target_hidden_size}: only a head as wide as its target can be inflated"
        )
    if config.attention_bias or config.mlp_bias:
        raise DraftwoodError("the head's layers have biases: only one without any can be inflated")
    if config.qk_norm:
        raise DraftwoodError(
            "the head norms queries and keys (q_norm), as Qwen3 does: only a head with Llama's "
            "attention can be inflated"
        )
    wanted = replace(large, layers=config.num_hidden_layers)
    check_fits(shape_of(config), wanted, "head")
    check_rotary(config, wanted)
    return wanted


def inflated_head_config(config: Eagle3Config, large: LlamaShape) -> Eagle3Config:
    """The configuration of the inflated head; arguments and errors of :func:`head_shape`."""
    wanted = head_shape(config, large)
    changed = copy.deepcopy(config)
    changed.rms_norm_eps = config.rms_norm_eps * norm_scale(config.hidden_size, wanted.hidden) ** 2
    changed.update({**wanted.config, "target_hidden_size": wanted.hidden})
    if not config.fuse:
        changed.taps = (large.layers,)  # the output of the target's final norm
    return changed


def empty_head(config: Eagle3Config, large: LlamaShape) -> Eagle3Head:
    """The inflated head without weights, on the meta device; errors of :func:`head_shape`."""
    with torch.device("meta"):
        return Eagle3Head(inflated_head_config(config, large))


def inflate_head(head: Eagle3Head, model: LlamaForCausalLM, *, seed: int) -> Eagle3Head:
    """The head that drafts for an inflated model what ``head`` drafts for its source.

    It is in evaluation mode, has the dtype of ``model`` and its device, and shares its embedding
    and ``lm_head`` where ``head`` shares the source's.

    Args:
        head: a head of the source, float32.
        model: the source, inflated.
        seed: seed of the unused weights.

    Raises:
        DraftwoodError: see :func:`head_shape`.
    """
    large = shape_of(model.config)
    made = empty_head(head.config, large)
    own = {name: tensor.detach().to(model.device) for name, tensor in head.state_dict().items()}
    weights = {
        name: tensor.to(model.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in head_weights(own, head.config, large, seed)
    }
    made.load_state_dict(weights, assign=True)
    made.rotary_emb = LlamaRotaryEmbedding(made.config).to(model.device)
    if not made.config.own_embedding:
        made.set_input_embeddings(model.get_input_embeddings())
    if not made.config.own_output:
        made.share_output(model.lm_head)
    made.train(mode=False)
    return made


def head_weights(
    source: Mapping[str, Tensor], config: Eagle3Config, large: LlamaShape, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """The inflated head's state dict in float32, one tensor at a time.

    Args:
        source: the small head's state dict, float32, on the device on which the weights are made.
        config: the small head's configuration.
        large: the inflated target's shape.
        seed: seed of the unused weights.
    """
    small, wanted = shape_of(config), head_shape(config, large)
    noise = torch.Generator(source["norm.weight"].device).manual_seed(seed)
    width, taps = wanted.hidden, len(config.taps)
    for index in range(config.num_hidden_layers):
        prefix = f"layers.{index}." if index else "midlayer."
        layer = {k.removeprefix(prefix): v for k, v in source.items() if k.startswith(prefix)}
        inputs = 1 if index else 2
        for name, weight in layer_weights(layer, small, wanted, noise, inputs=inputs):
            yield prefix + name, weight
    for name, values in source.items():
        if name in _TABLES:
            yield name, values
        elif name == "fc.weight":
            columns = widened(values, width, taps)
            yield name, widened(columns.T, width).T.contiguous()
        elif name == "mask_hidden":
            yield name, widened(values, width, taps)
        elif name == "input_norm.weight":
            yield name, norm(values, width, taps)
        elif name in ("norm.weight", "midlayer.hidden_norm.weight") or name.startswith("fc_norm."):
            yield name, norm(values, width)
        elif name in ("fc.bias", "embed_tokens.weight", "lm_head.weight"):
            yield name, widened(values, width)


def has_rows_of(head: Eagle3Head, source: LlamaForCausalLM) -> bool:
    """Whether the head's ``lm_head`` has the rows of its target's, and need not be stored."""
    if not head.config.own_output:
        return True
    table: Tensor = source.lm_head.weight
    ids = torch.from_numpy(head.target_ids()).to(table.device)
    return torch.equal(head.lm_head.weight, table[ids])
