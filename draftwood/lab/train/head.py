"""A new EAGLE-3 head for a given target, and its draft vocabulary."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import rms_norm

from draftwood.drafters.eagle3.config import Eagle3Config
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.eagle3 import ATTENTION
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.text_model import zero_branches

_COUNTED = 1_000_000
_SMALLEST = 1e-3
"""RMS below which a channel counts as empty."""


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
    config: Eagle3Config,
    teacher: Teacher,
    drafted: NDArray[np.int64],
    seed: int,
    *,
    tied: bool = False,
) -> Eagle3Head:
    """Initialise a float32 head on the target's device, ready for :func:`unroll`.

    Its residual branches start at zero, its output matrix as the target's.

    Args:
        config: sizes of the head.
        teacher: the target, whose embedding the head shares.
        drafted: draft vocabulary: target ids [draft_vocab_size], ascending.
        seed: seed of the random weights.
        tied: whether the output matrix stays as the target's.
    """
    torch.manual_seed(seed)
    head = Eagle3Head(config)
    zero_branches(head)
    ids = torch.from_numpy(drafted)
    head.d2t.copy_(ids - torch.arange(len(ids)))
    head.t2d.zero_()[ids] = True
    _copy_rows(head.lm_head.weight, teacher.head, ids)
    head.lm_head.requires_grad_(not tied)
    torch.nn.Module.to(head, teacher.head.device)
    head.set_input_embeddings(teacher.model.get_input_embeddings())
    head.set_attn_implementation(ATTENTION)
    return head


@torch.no_grad()
def equalise_taps(head: Eagle3Head, teacher: Teacher, tokens: Tensor) -> None:
    """Set the norms of the taps so that all channels of the projection's input have RMS 1.

    The first token of a row is left out: its states are outliers in many models.

    Args:
        head: a head with ``fc_norm``.
        teacher: the target.
        tokens: some text, int64 [rows, length].
    """
    features = teacher.read(tokens.to(head.device), tuple(head.config.taps)).features[:, 1:]
    taps = features.float().flatten(0, 1).chunk(len(head.config.taps), dim=-1)
    norms: Any = head.fc_norm
    for norm, tap in zip(norms, taps, strict=True):
        channels = rms_norm(tap, tap.shape[-1:]).square().mean(0).sqrt()
        norm.weight.copy_(1.0 / channels.clamp(min=_SMALLEST))


@torch.no_grad()
def _copy_rows(matrix: Tensor, source: Tensor, rows: Tensor) -> None:
    matrix.copy_(source[rows.to(source.device)])
