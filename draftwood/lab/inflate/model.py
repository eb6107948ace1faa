"""From a small Llama to a large one of the same function, and the check that it is the same.

Knows transformers' LlamaForCausalLM and no files. Other architectures are refused: their norms,
biases or rotary scaling would need rules of their own.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from draftwood.errors import DraftwoodError
from draftwood.lab.inflate.shapes import Shape
from draftwood.lab.inflate.weights import HEAD, inflated, norm_scale

TOLERANCE = 1e-3
"""Largest difference between logits in float32 that counts as the same function."""

# Scalings that look at nothing but each pair's frequency; the others depend on the head size.
_ROTARY = ("default", "linear", "llama3")


@dataclass(frozen=True)
class Agreement:
    """How two models compare on the same tokens, in float32.

    Attributes:
        positions: next-token predictions that were compared.
        greedy_equal: how many of them have the same most probable token.
        largest: the largest difference between two logits.
    """

    positions: int
    greedy_equal: int
    largest: float

    @property
    def holds(self) -> bool:
        """Whether this is what the same function looks like."""
        return self.greedy_equal == self.positions and self.largest <= TOLERANCE


def as_llama(model: PreTrainedModel, name: str) -> LlamaForCausalLM:
    """The model itself, if it is one that can be inflated.

    Raises:
        DraftwoodError: it is another class (a subclass too: it may compute something else), has
            biases, or is quantized.
    """
    if type(model) is not LlamaForCausalLM:
        raise DraftwoodError(
            f"{name!r} is a {type(model).__name__}: only LlamaForCausalLM can be inflated"
        )
    if model.config.attention_bias or model.config.mlp_bias:
        raise DraftwoodError(f"{name!r} has biases: only a Llama without any can be inflated")
    if getattr(model.config, "quantization_config", None):
        raise DraftwoodError(f"{name!r} is quantized: name the checkpoint in floating point")
    return model


def shape_of(config: LlamaConfig) -> Shape:
    """The shape that a configuration describes."""
    heads = config.num_attention_heads
    return Shape(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=config.num_key_value_heads or heads,
        head_dim=config.head_dim or config.hidden_size // heads,
        ffn=config.intermediate_size,
    )


def check_rotary(config: LlamaConfig, large: Shape) -> None:
    """Refuse to enlarge heads whose rotary frequencies would not stay what they are.

    Raises:
        DraftwoodError: the kind of scaling depends on the head size, or rotates a part of it.
    """
    # transformers types the field as a union of dictionaries.
    parameters = dict(config.rope_parameters or {})
    kind = parameters.get("rope_type", "default")
    partial = parameters.get("partial_rotary_factor", 1.0) != 1.0
    if large.head_dim != shape_of(config).head_dim and (kind not in _ROTARY or partial):
        described = "partial rotary positions" if partial else f"rotary scaling {kind!r}"
        raise DraftwoodError(
            f"{described} would change with the head size: keep "
            f"--head-dim {shape_of(config).head_dim}"
        )


def inflate(
    source: LlamaForCausalLM, large: Shape, *, dtype: torch.dtype, seed: int
) -> LlamaForCausalLM:
    """A model of shape ``large`` with the function of ``source``, in evaluation mode on the CPU.

    Args:
        source: a float32 model on the CPU that ``as_llama`` accepts.
        large: a shape that ``check_fits`` and ``check_rotary`` accept.
        dtype: of the weights; they are made in float32, one at a time.
        seed: of the weights that nothing depends on.
    """
    small = shape_of(source.config)
    weights = {k: v.detach() for k, v in source.state_dict().items()}
    if source.config.tie_word_embeddings:
        del weights[HEAD]
    # Without a name, transformers makes the model of these tensors themselves: no second copy.
    model = LlamaForCausalLM.from_pretrained(
        None,
        config=inflated_config(source.config, large),
        state_dict={name: w.to(dtype) for name, w in inflated(weights, small, large, seed)},
        dtype=dtype,
    )
    assert isinstance(model, LlamaForCausalLM)
    model.generation_config = copy.deepcopy(source.generation_config)
    model.train(mode=False)
    return model


def inflated_config(config: LlamaConfig, large: Shape) -> LlamaConfig:
    """The source's configuration with the sizes of ``large``, and eps scaled like mean squares."""
    changed = copy.deepcopy(config)
    changed.rms_norm_eps = config.rms_norm_eps * norm_scale(config.hidden_size, large.hidden) ** 2
    changed.hidden_size = large.hidden
    changed.num_hidden_layers = large.layers
    changed.num_attention_heads = large.heads
    changed.num_key_value_heads = large.kv_heads
    changed.head_dim = large.head_dim
    changed.intermediate_size = large.ffn
    return changed


@torch.no_grad()
def compare(
    source: LlamaForCausalLM, model: LlamaForCausalLM, prompt: Tensor, new_tokens: int
) -> Agreement:
    """Both models on a prompt and on what ``source`` continues it with.

    Equal greedy tokens at every position of the source's continuation mean that the other model
    continues alike, so it is run only once.

    Args:
        source: float32, like ``model``.
        model: the model to compare.
        prompt: token ids, int64 [n].
        new_tokens: how many tokens to continue with.
    """
    ids = prompt[None]
    for _ in range(new_tokens):
        following = source(ids, use_cache=False).logits[0, -1].argmax()
        ids = torch.cat([ids, following.view(1, 1)], dim=1)
    ours, theirs = (each(ids, use_cache=False).logits[0] for each in (source, model))
    return Agreement(
        positions=ids.shape[1],
        greedy_equal=int((ours.argmax(-1) == theirs.argmax(-1)).sum()),
        largest=float((ours - theirs).abs().max()),
    )


def check(
    source: LlamaForCausalLM, model: LlamaForCausalLM, prompt: Tensor, new_tokens: int
) -> Agreement:
    """``compare``, and an error if the functions differ.

    Raises:
        DraftwoodError: a greedy token differs, or a logit by more than ``TOLERANCE``.
    """
    found = compare(source, model, prompt, new_tokens)
    if not found.holds:
        raise DraftwoodError(
            f"the inflated model is not the same function: {found.greedy_equal} of "
            f"{found.positions} greedy tokens are equal and logits differ by up to "
            f"{found.largest:.1e} (allowed: {TOLERANCE:.0e}); nothing was written"
        )
    return found
