"""Inflates a small Llama to the shape of a large one, and checks that both compute the same.

Other architectures are refused: their norms, biases or rotary scaling would need other rules.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draftwood.errors import DraftwoodError
from draftwood.lab.inflate.shapes import CONFIG, LlamaShape
from draftwood.lab.inflate.weights import EMBEDDING, HEAD, inflated, norm_scale

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
    source: LlamaForCausalLM,
    large: LlamaShape,
    *,
    dtype: torch.dtype,
    seed: int,
    device: torch.device | str = "cpu",
) -> LlamaForCausalLM:
    """A model of shape ``large`` with the function of ``source``, in evaluation mode.

    Args:
        source: a float32 model that ``as_llama`` accepts.
        large: a shape that ``check_fits`` and ``check_rotary`` accept.
        dtype: number format of the weights; they are computed in float32, one at a time.
        seed: seed of the unused weights, which are others on another kind of device.
        device: where the weights are made, and the model is.
    """
    small, config = shape_of(source.config), inflated_config(source.config, large)
    weights = {k: v.detach().to(device) for k, v in source.state_dict().items()}
    if source.config.tie_word_embeddings:
        del weights[HEAD]
    config.dtype = dtype
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    made = {name: w.to(dtype) for name, w in inflated(weights, small, large, seed)}
    if config.tie_word_embeddings:
        made[HEAD] = made[EMBEDDING]
    model.load_state_dict(made, assign=True)
    model.tie_weights()
    model.model.rotary_emb = LlamaRotaryEmbedding(config).to(device)
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
        model: the inflated model, on the same device.
        prompt: token ids, int64 [n].
        new_tokens: length of the continuation.
    """
    ids = prompt[None].to(source.device)
    for _ in range(new_tokens):
        following = source(ids, use_cache=False).logits[0, -1].argmax()
        ids = torch.cat([ids, following.view(1, 1)], dim=1)
    ours, theirs = (each(ids, use_cache=False).logits[0] for each in (source, model))
    return compared(ours, theirs)


def compared(ours: Tensor, theirs: Tensor) -> Comparison:
    """Comparison of two tables of logits, ``[n, V]``."""
    return Comparison(
        positions=len(ours),
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
    return agreeing(found, "the inflated model")


def agreeing(found: Comparison, what: str) -> Comparison:
    """The comparison, if it holds.

    Args:
        found: of two functions that should be equal.
        what: the second one, for the message.

    Raises:
        DraftwoodError: it does not.
    """
    if not found.holds:
        raise DraftwoodError(
            f"{what} computes something else: {found.greedy_equal} of "
            f"{found.positions} greedy tokens are equal and logits differ by up to "
            f"{found.largest:.1e} (allowed: {TOLERANCE:.0e}); nothing was written"
        )
    return found
