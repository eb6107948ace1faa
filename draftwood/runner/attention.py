"""Tree attention for unmodified Hugging Face models.

An attention function and its mask function are registered as a pair, under one name per original
implementation. The function acts only if the forward got ``draftwood_visibility=``, or inside
:func:`handed`. Otherwise the original runs, so plain ``generate`` computes the same as before.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from draftwood.errors import DraftwoodError
from draftwood.runner.cpu.attention import Sequences, attend
from draftwood.runner.kernel_attention import KernelAttention

AttentionFunction = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]

ORIGINALS = ("sdpa", "eager")
PREFIX = "draftwood_"


class Visibility(Enum):
    """Visibility of keys to the queries of one forward.

    * ``OPEN``: every query sees every key (plain decoding of one sequence);
    * ``CAUSAL``: the queries are the last tokens of their sequences, in order;
    * ``TREE``: a float mask ``[b, 1, g*q, kv]``, repeated for the g query heads of a group, or more
      often for layers with larger groups;
    * ``CHUNK``: a float mask ``[b, 1, q, kv]``.
    """

    OPEN = 0
    CAUSAL = 1
    TREE = 2
    CHUNK = 3


@dataclass(frozen=True, eq=False)
class Varlen:
    """New tokens of several sequences in one row ``[1, n]``, sequence after sequence.

    Attributes:
        visibility: how the queries of each sequence see its keys. A mask is ``[b, 1, .., kv]``: of
            each sequence the first rows and columns, as many as it has.
        counts: new tokens of each sequence.
        lengths: keys of each sequence, its new tokens included.
        places: int64 ``[n]``, each token's place in ``[b, max(counts)]``, for attention over
            padded queries, with masks of that height; None: over each sequence by itself.
        in_order: which sequences are ``CAUSAL``, whatever the others are; empty: none.
    """

    visibility: Visibility
    counts: Sequence[int]
    lengths: Sequence[int]
    places: torch.Tensor | None = None
    in_order: Sequence[bool] = ()

    @cached_property
    def starts(self) -> list[int]:
        """First token of each sequence, and the number of all tokens."""
        return [0, *accumulate(self.counts)]

    @cached_property
    def sequences(self) -> Sequences:
        """For the kernel on a CPU: the same in all layers."""
        causal = [self.of(i) is Visibility.CAUSAL for i in range(len(self.counts))]
        return Sequences(self.starts, self.lengths, causal)

    def of(self, sequence: int) -> Visibility:
        """How the queries of one sequence see its keys."""
        in_order = self.in_order and self.in_order[sequence]
        return Visibility.CAUSAL if in_order else self.visibility


@dataclass
class HeadGroups:
    """Causal attention that records what it is given.

    Attributes:
        sizes: number of query heads that share a key head, layer by layer.
        read: keys and values, layer by layer.
    """

    sizes: list[int] = field(default_factory=list)
    read: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)


Step: TypeAlias = Visibility | Varlen | KernelAttention
"""How the queries of a forward see its keys."""

_handed: ContextVar[Step | HeadGroups | None] = ContextVar("handed", default=None)


@contextmanager
def handed(step: Step | HeadGroups) -> Iterator[None]:
    """A context of a forward whose decoder layers drop ``draftwood_visibility`` before attention.

    Those of StableLM and Nemotron do.
    """
    token = _handed.set(step)
    try:
        yield
    finally:
        _handed.reset(token)


# Arguments that do not change the result, given that the mask is ours.
_HARMLESS = frozenset(
    {
        "is_causal",
        "sliding_window",
        "position_ids",
        "position_embeddings",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
        "logits_to_keep",
        "softcap",
        "s_aux",
        "head_mask",
        "layer_idx",
        "layer_type",
    }
)


def register(original: str) -> str:
    """Register the pair for the implementation ``original``; returns its name.

    Raises:
        DraftwoodError: the original is neither ``sdpa`` nor ``eager``.
    """
    if original not in ORIGINALS:
        raise DraftwoodError(
            f"attention implementation {original!r} cannot be restored faithfully; load the model "
            "with attn_implementation='sdpa' or 'eager'"
        )
    name = PREFIX + original
    AttentionInterface.register(name, _delegating(original))
    AttentionMaskInterface.register(name, _masks(original))
    return name


def _masks(original: str) -> Callable[..., torch.Tensor | None]:
    """The mask function of an implementation, which masks all rows where some are dropped.

    Models whose last layers store no keys drop the rows that nobody reads before these layers. With
    no mask, PyTorch takes the others for the first rows of their texts. Under the name ``sdpa``
    such models then keep all rows; they do not know our name.
    """

    def masks(*args: Any, **kwargs: Any) -> torch.Tensor | None:
        if getattr(kwargs.get("config"), "num_kv_shared_layers", 0):
            kwargs["allow_is_causal_skip"] = False
        mask: torch.Tensor | None = ALL_MASK_ATTENTION_FUNCTIONS[original](*args, **kwargs)
        return mask

    return masks


def _delegating(original: str) -> AttentionFunction:
    def attention(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        draftwood_visibility: Step | HeadGroups | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if draftwood_visibility is None:
            draftwood_visibility = _handed.get()
        if draftwood_visibility is None:
            if original == "eager":
                function = _eager_of(module)
            else:
                function = ALL_ATTENTION_FUNCTIONS[original]
            return function(
                module,
                query,
                key,
                value,
                attention_mask,
                scaling=scaling,
                dropout=dropout,
                **kwargs,
            )
        if isinstance(draftwood_visibility, HeadGroups):
            draftwood_visibility.sizes.append(query.shape[1] // key.shape[1])
            draftwood_visibility.read.append((key, value))
            draftwood_visibility = Visibility.CAUSAL
        if not kwargs.keys() <= _HARMLESS:
            _refuse_demands(kwargs)
        cap, sinks = kwargs.get("softcap"), kwargs.get("s_aux")
        given = (query, key, value, attention_mask, scaling)
        if isinstance(draftwood_visibility, KernelAttention):
            assert attention_mask is not None
            output = draftwood_visibility.attend(
                query, key, value, attention_mask, scaling, cap, sinks
            )
        elif cap is None and sinks is None:
            output = fused_attention(*given, draftwood_visibility)
        elif isinstance(draftwood_visibility, Varlen):
            output = _by_sequence(
                lambda q, k, v, m, s, step: _unfused(q, k, v, m, s, step, cap, sinks),
                *given,
                draftwood_visibility,
            )
        else:
            output = _unfused(*given, draftwood_visibility, cap, sinks)
        return output, None

    return attention


def _eager_of(module: nn.Module) -> AttentionFunction:
    function = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if function is None:
        raise DraftwoodError(
            f"{type(module).__name__} has no eager attention function to fall back on; load the "
            "model with attn_implementation='sdpa'"
        )
    return function  # type: ignore[no-any-return]


def _refuse_demands(kwargs: dict[str, Any]) -> None:
    unknown = sorted(n for n, v in kwargs.items() if n not in _HARMLESS and v is not None)
    if unknown:
        raise DraftwoodError(
            f"the model's attention asks for {', '.join(unknown)}, which tree attention does not "
            "compute; decode this model without draftwood"
        )


def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    step: Visibility | Varlen,
) -> torch.Tensor:
    """Attention output ``[b, q, heads, d]``, in as few operations as there can be.

    Args:
        query: ``[b, heads, q, d]``; of a :class:`Varlen` ``[1, heads, n, d]``.
        key: ``[b, kv_heads, kv, d]``.
        value: as ``key``.
        mask: as :class:`Visibility` says.
        scaling: of the scores; None: ``d ** -0.5``.
        step: how queries see keys.
    """
    if isinstance(step, Varlen):
        if step.visibility is not Visibility.CHUNK and step.places is None:
            shown = mask if step.visibility is Visibility.TREE else None
            found = attend(query, key, value, shown, scaling, step.sequences)
            if found is not None:
                return found
        return _by_sequence(fused_attention, query, key, value, mask, scaling, step)
    b, heads, q, d = query.shape
    kv_heads, kv = key.shape[1:3]
    causal = step is Visibility.CAUSAL
    if step is not Visibility.CHUNK:
        if step is not Visibility.TREE:
            mask = None
        found = attend(query, key, value, mask, scaling, in_order=causal)
        if found is not None:
            return found
    if step is Visibility.TREE or step is Visibility.OPEN:
        # The g query heads that share a key head become g*q queries of it: nothing is repeated.
        g = heads // kv_heads
        packed = query if g == 1 else query.reshape(b, kv_heads, g * q, d)
        shown = None if mask is None else mask[:, :, : g * q]
        output = scaled_dot_product_attention(packed, key, value, attn_mask=shown, scale=scaling)
        if g > 1:
            output = output.reshape(b, heads, q, value.shape[-1])
    else:
        output = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=~_later(q, kv, query.device) if causal and q < kv else mask,
            is_causal=causal and q == kv,  # PyTorch takes the queries for the first tokens
            scale=scaling,
            enable_gqa=heads != kv_heads,
        )
    return output.transpose(1, 2).contiguous()


def _by_sequence(
    attention: Callable[..., torch.Tensor],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    step: Varlen,
) -> torch.Tensor:
    """Attention output ``[1, n, heads, d]``, sequence by sequence or over padded queries."""
    _, heads, _, d = query.shape
    if step.places is not None:
        b, q = len(step.counts), max(step.counts)
        padded = query.new_zeros(b * q, heads, d)
        padded.index_copy_(0, step.places, query[0].transpose(0, 1))
        spread = padded.view(b, q, heads, d).transpose(1, 2)
        found = attention(spread, key, value, mask, scaling, step.visibility)
        return found.flatten(0, 1).index_select(0, step.places)[None]
    parts = []
    for i, (start, count, kv) in enumerate(
        zip(step.starts, step.counts, step.lengths, strict=False)
    ):
        own = step.of(i)
        group = heads // key.shape[1] if own is Visibility.TREE else 1
        parts.append(
            attention(
                query[:, :, start : start + count],
                key[i : i + 1, :, :kv],
                value[i : i + 1, :, :kv],
                None if mask is None else mask[i : i + 1, :, : group * count, :kv],
                scaling,
                own,
            )
        )
    return torch.cat(parts, dim=1)


def _later(q: int, kv: int, device: torch.device) -> torch.Tensor:
    """The keys ``[q, kv]`` behind each of the last q tokens."""
    return torch.ones(q, kv, dtype=torch.bool, device=device).triu_(kv - q + 1)


def _unfused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    step: Visibility,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention in single operations, with options that the fused kernel lacks.

    Args:
        softcap: c; scores become ``c * tanh(scores / c)`` before the mask (Gemma 2, section 2).
        sinks: ``[heads]``, a further score in the softmax that has no value (gpt-oss model card,
            section 2.2).
    """
    b, heads, q, d = query.shape
    kv_heads, kv = key.shape[1], key.shape[2]
    g = heads // kv_heads
    packed = query.reshape(b, kv_heads, g * q, d)
    scores = torch.matmul(packed, key.transpose(2, 3))
    scores = scores * (d**-0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if step is Visibility.CAUSAL:
        hidden = _later(q, kv, query.device)
        scores = scores.view(b, kv_heads, g, q, kv).masked_fill_(hidden, -torch.inf)
    elif step is Visibility.CHUNK and mask is not None:
        scores = scores.view(b, kv_heads, g, q, kv) + mask.unsqueeze(2)
    elif step is Visibility.TREE and mask is not None:
        scores = scores + mask[:, :, : g * q]
    scores = scores.view(b, kv_heads, g * q, kv)
    exact = torch.float32
    if sinks is not None:
        beside = sinks.view(1, kv_heads, g, 1, 1).expand(b, -1, -1, q, -1)
        scores = torch.cat([scores, beside.reshape(b, kv_heads, g * q, 1)], dim=-1)
        # Rounded as in the models' own attention.
        scores, exact = scores - scores.amax(dim=-1, keepdim=True), scores.dtype
    weights = torch.softmax(scores, dim=-1, dtype=exact).to(query.dtype)[..., :kv]
    output = torch.matmul(weights, value).reshape(b, heads, q, value.shape[-1])
    return output.transpose(1, 2).contiguous()
