"""Inflates a small Llama to the shape of a large one, and checks that both compute the same.

Other architectures are refused: their norms, biases or rotary scaling would need other rules.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from draftwood.errors import DraftwoodError
from draftwood.lab.inflate.shapes import CONFIG, LlamaShape
from draftwood.lab.inflate.weights import HEAD, inflated, norm_scale

TOLERANCE = 1e-3
"""Largest allowed difference between logits in float32."""

# Scalings that depend on each pair's frequency only, not on the head size.
_ROTARY = ("default", "linear", "llama3")


@dataclass(frozen=True)
class Comparison:
    """Comparison of two models on the same tokens, in float32.

    Attributes:
        positions: number of compared next-token predictions.
        greedy_equal: predictions with the same most probable token.
        largest: largest difference between two logits.
    """

    positions: int
    greedy_equal: int
    largest: float

    @property
    def holds(self) -> bool:
        """Whether all greedy tokens are equal and the logits within ``TOLERANCE``."""
        return self.greedy_equal == self.positions and self.largest <= TOLERANCE


def as_llama(model: PreTrainedModel, name: str) -> LlamaForCausalLM:
    """The model, checked to be one that can be inflated.

    Raises:
        DraftwoodError: it is of another class (a subclass may compute something else), has biases,
            or is quantized.
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


def shape_of(config: LlamaConfig) -> LlamaShape:
    """The shape of a configuration."""
    return LlamaShape(**{own: getattr(config, theirs) for own, theirs in CONFIG.items()})


def check_rotary(config: LlamaConfig, large: LlamaShape) -> None:
    """Refuse to enlarge heads whose rotary frequencies would change.

    Raises:
        DraftwoodError: the scaling depends on the head size, or rotates a part of each head.
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
    source: LlamaForCausalLM, large: LlamaShape, *, dtype: torch.dtype, seed: int
) -> LlamaForCausalLM:
    """A model of shape ``large`` with the function of ``source``, in evaluation mode on the CPU.

    Args:
        source: a float32 model on the CPU that ``as_llama`` accepts.
        large: a shape that ``check_fits`` and ``check_rotary`` accept.
        dtype: number format of the weights; they are computed in float32, one at a time.
        seed: seed of the unused weights.
    """
    small = shape_of(source.config)
    weights = {k: v.detach() for k, v in source.state_dict().items()}
    if source.config.tie_word_embeddings:
        del weights[HEAD]
    # Without a name, transformers uses these tensors themselves, without a second copy.
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


def inflated_config(config: LlamaConfig, large: LlamaShape) -> LlamaConfig:
    """The source's configuration with the sizes of ``large`` and the norms' eps scaled."""
    changed = copy.deepcopy(config)
    changed.rms_norm_eps = config.rms_norm_eps * norm_scale(config.hidden_size, large.hidden) ** 2
    changed.update(large.config)
    return changed


@torch.no_grad()
def compare(
    source: LlamaForCausalLM, model: LlamaForCausalLM, prompt: Tensor, new_tokens: int
) -> Comparison:
    """Compare both models on a prompt and the greedy continuation by ``source``.

    If all greedy tokens are equal, the other model generates the same continuation; one forward
    shows it.

    Args:
        source: float32, like ``model``.
        model: the inflated model.
        prompt: token ids, int64 [n].
        new_tokens: length of the continuation.
    """
    ids = prompt[None]
    for _ in range(new_tokens):
        following = source(ids, use_cache=False).logits[0, -1].argmax()
        ids = torch.cat([ids, following.view(1, 1)], dim=1)
    ours, theirs = (each(ids, use_cache=False).logits[0] for each in (source, model))
    return Comparison(
        positions=ids.shape[1],
        greedy_equal=int((ours.argmax(-1) == theirs.argmax(-1)).sum()),
        largest=float((ours - theirs).abs().max()),
    )


def check(
    source: LlamaForCausalLM, model: LlamaForCausalLM, prompt: Tensor, new_tokens: int
) -> Comparison:
    """Compare both models and refuse a difference.

    Raises:
        DraftwoodError: a greedy token differs, or a logit by more than ``TOLERANCE``.
    """
    found = compare(source, model, prompt, new_tokens)
    if not found.holds:
        raise DraftwoodError(
            f"the inflated model computes something else: {found.greedy_equal} of "
            f"{found.positions} greedy tokens are equal and logits differ by up to "
            f"{found.largest:.1e} (allowed: {TOLERANCE:.0e}); nothing was written"
        )
    return found
