"""Configuration and initialisation of an EAGLE-3 head for a given target."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.drafters.eagle3.config import Eagle3Config, default_taps
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.eagle3 import ATTENTION
from draftwood.lab.train.recipe import UNROLL, ModelShape
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.text_model import zero_branches

_WHOLE_VOCABULARY = 8192
_DRAFT_VOCABULARY = 32_000
_COUNTED = 1_000_000
_ROPE_THETA = 10_000.0


@dataclass(frozen=True)
class HeadPlan:
    """Settings of a head; None: derived from the target.

    Attributes:
        unroll: trained steps, at least 1: the length of its chains.
        taps: target layers whose input hidden states are read; None: layers 2, L//2, L-3.
        draft_vocab: size of the draft vocabulary; None: all of up to 8,192, else 32,000.
        heads: number of query heads; None: the target's, likewise below.
        kv_heads: number of key-value heads.
        head_dim: size of a head.
        ffn: intermediate size of the feed-forward layer.
    """

    unroll: int = UNROLL
    taps: tuple[int, ...] | None = None
    draft_vocab: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None

    def __post_init__(self) -> None:
        if self.unroll < 1:
            raise DraftwoodError(
                f"--unroll is {self.unroll}; a head is trained for 1 step or more."
            )

    def config(self, teacher: Teacher) -> Eagle3Config:
        """The head's configuration for this target.

        Raises:
            DraftwoodError: the plan does not fit the target, or contradicts itself.
        """
        shape, target = self._shape(teacher), teacher.config
        taps = default_taps(teacher.layers) if self.taps is None else self.taps
        if not all(0 <= tap < teacher.layers for tap in taps):
            raise DraftwoodError(
                f"--taps {'+'.join(map(str, taps))} are not all layers of {teacher.name}; "
                f"give layers from 0 to {teacher.layers - 1}."
            )
        rope = getattr(target, "rope_parameters", None) or {}
        return Eagle3Config(
            vocab_size=teacher.vocab_size,
            draft_vocab_size=self._draft_vocab(teacher.vocab_size),
            hidden_size=shape.hidden,
            target_hidden_size=shape.hidden,
            intermediate_size=shape.ffn,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            max_position_embeddings=shape.context,
            rms_norm_eps=getattr(target, "rms_norm_eps", 1e-6),
            rope_parameters={
                "rope_type": "default",
                "rope_theta": rope.get("rope_theta", _ROPE_THETA),
            },
            taps=taps,
            bos_token_id=None,
            eos_token_id=None,
        )

    def _shape(self, teacher: Teacher) -> ModelShape:
        target = teacher.config
        heads = target.num_attention_heads
        shape = ModelShape(
            hidden=target.hidden_size,
            layers=1,
            heads=heads,
            kv_heads=getattr(target, "num_key_value_heads", None) or heads,
            head_dim=getattr(target, "head_dim", None) or target.hidden_size // heads,
            ffn=getattr(target, "intermediate_size", None) or 4 * target.hidden_size,
            context=getattr(target, "max_position_embeddings", None) or ModelShape.context,
        )
        names = ("heads", "kv_heads", "head_dim", "ffn")
        given = {name: getattr(self, name) for name in names}
        shape = replace(shape, **{name: size for name, size in given.items() if size is not None})
        if shape.hidden % shape.heads:
            raise DraftwoodError(
                f"Llama layers of {shape.hidden} channels, the target's, cannot have {shape.heads} "
                "heads; give --heads that divide them."
            )
        return shape

    def _draft_vocab(self, vocab_size: int) -> int:
        if self.draft_vocab is None:
            whole = vocab_size <= _WHOLE_VOCABULARY
            return vocab_size if whole else min(vocab_size, _DRAFT_VOCABULARY)
        if not 1 <= self.draft_vocab <= vocab_size:
            raise DraftwoodError(
                f"--draft-vocab is {self.draft_vocab}; give 1 to {vocab_size}, the target's tokens."
            )
        return self.draft_vocab


def describe(config: Eagle3Config) -> dict[str, Any]:
    """Sizes of a head, for its provenance."""
    return {
        "hidden": config.hidden_size,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "ffn": config.intermediate_size,
        "taps": list(config.taps),
        "draft_vocab": config.draft_vocab_size,
    }


def frequent_tokens(
    domains: tuple[Domain, ...], mixture: Mapping[str, float], vocab_size: int, count: int
) -> NDArray[np.int64]:
    """The ``count`` most frequent tokens of the mixture, in ascending order; ties: lower ids.

    Up to a million tokens of each domain are counted, evenly spread.
    """
    shares = np.zeros(vocab_size)
    for domain in domains:
        sample = domain.train[:: max(1, len(domain.train) // _COUNTED)]
        counts = np.bincount(sample, minlength=vocab_size)
        shares += mixture[domain.name] * counts / len(sample)
    return np.sort(np.argsort(-shares, kind="stable")[:count])


def new_head(
    config: Eagle3Config, teacher: Teacher, drafted: NDArray[np.int64], seed: int
) -> Eagle3Head:
    """Initialise a float32 head on the target's device, ready for :func:`unroll`.

    Its residual branches start at zero, its output matrix as the target's.

    Args:
        config: sizes of the head.
        teacher: the target, whose embedding the head shares.
        drafted: draft vocabulary: target ids [draft_vocab_size], ascending.
        seed: seed of the random weights.
    """
    torch.manual_seed(seed)
    head = Eagle3Head(config)
    zero_branches(head)
    ids = torch.from_numpy(drafted)
    head.d2t.copy_(ids - torch.arange(len(ids)))
    head.t2d.zero_()[ids] = True
    _copy_rows(head.lm_head.weight, teacher.head, ids)
    torch.nn.Module.to(head, teacher.head.device)
    head.set_input_embeddings(teacher.model.get_input_embeddings())
    head.set_attn_implementation(ATTENTION)
    return head


@torch.no_grad()
def _copy_rows(matrix: Tensor, source: Tensor, rows: Tensor) -> None:
    matrix.copy_(source[rows.to(source.device)])
