"""Layouts a weight matrix may have, and which of them this machine multiplies fastest.

Knows weights and row counts; refuses to know whose weights they are.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import linear as plain_linear

BUCKETS = (1, 4, 16, 64)
_END = 256
_GAIN = 0.95


@dataclass(frozen=True)
class Form:
    """A layout: ``apply(x, pack(w), bias)`` equals ``x @ w.T + bias`` up to rounding."""

    name: str
    pack: Callable[[torch.Tensor], torch.Tensor]
    unpack: Callable[[torch.Tensor], torch.Tensor]
    apply: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


@dataclass(frozen=True)
class Choice:
    """A layout, and the row counts ``low <= rows < high`` for which it is worth using."""

    form: Form
    low: int = 0
    high: int = 1 << 40


def _transpose(weight: torch.Tensor) -> torch.Tensor:
    return weight.t().contiguous().t()


def _block(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, 16)  # type: ignore[no-any-return]


def _unblock(weight: torch.Tensor) -> torch.Tensor:
    return weight.to_dense()


def _blocked_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(  # type: ignore[no-any-return]
        x, weight, bias, "none", [], ""
    )


TRANSPOSED = Form("transposed", _transpose, torch.Tensor.contiguous, plain_linear)
BLOCKED = Form("blocked", _block, _unblock, _blocked_linear)


def blocked_works() -> bool:
    """Whether this torch has oneDNN's ops (underscored, hence never taken for granted)."""
    try:
        weight = torch.eye(4)
        return torch.equal(_blocked_linear(weight, _block(weight), None), weight)
    except (AttributeError, RuntimeError):
        return False


def measured(weight: torch.Tensor, bias: torch.Tensor | None) -> Choice | None:
    """The layout that saves most over the plain one at 1 to 64 rows; None if none saves."""
    plain = [_seconds(plain_linear, weight, bias, rows) for rows in BUCKETS]
    best: Choice | None = None
    best_gain = 0.0
    for form in (TRANSPOSED, BLOCKED) if blocked_works() else (TRANSPOSED,):
        packed = form.pack(weight)
        ratios = [
            _seconds(form.apply, packed, bias, rows) / seconds
            for rows, seconds in zip(BUCKETS, plain, strict=True)
        ]
        gains = [ratio < _GAIN for ratio in ratios]
        if True not in gains:
            continue
        first = gains.index(True)
        last = first
        while last + 1 < len(gains) and gains[last + 1]:
            last += 1
        gain = sum(1 - ratio for ratio in ratios[first : last + 1])
        if gain > best_gain:
            best_gain = gain
            best = Choice(form, BUCKETS[first], (*BUCKETS, _END)[last + 1])
    return best


def _seconds(
    apply: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor],
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rows: int,
) -> float:
    x = torch.ones((1, rows, weight.shape[1]), dtype=weight.dtype)
    best, spent = float("inf"), 0.0
    apply(x, weight, bias)
    for _ in range(20):
        begin = time.perf_counter()
        apply(x, weight, bias)
        took = time.perf_counter() - begin
        best, spent = min(best, took), spent + took
        if spent > 0.01:
            break
    return best
