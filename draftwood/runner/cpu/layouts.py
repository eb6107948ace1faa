"""Layouts a weight matrix may have, and which of them this machine multiplies fastest.

Knows weights and row counts; refuses to know whose weights they are.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TypeAlias

import torch
from torch.nn.functional import linear as plain_linear

Weight: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
Shape: TypeAlias = tuple[torch.Size, torch.dtype, bool]

BUCKETS = (1, 2, 4, 8, 16, 64)
_END = 256
_GAIN = 0.05
"""What a layout must save to be worth its memory, as parts of the plain time, buckets summed."""

_ENOUGH = 1 << 26
"""Bytes of weights of which no cache holds the most."""

_WARM_UP, _PASSES, _LONG = 1, 4, 0.5
"""Passes through the sample, first and counted ones, and seconds after which no more are made."""


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


PLAIN = Form("plain", lambda weight: weight, lambda weight: weight, plain_linear)
TRANSPOSED = Form("transposed", _transpose, torch.Tensor.contiguous, plain_linear)
BLOCKED = Form("blocked", _block, _unblock, _blocked_linear)


def blocked_works() -> bool:
    """Whether this torch has oneDNN's ops (underscored, hence never taken for granted)."""
    try:
        weight = torch.eye(4)
        return torch.equal(_blocked_linear(weight, _block(weight), None), weight)
    except (AttributeError, RuntimeError):
        return False


def measured(weights: Sequence[Weight]) -> list[Choice | None]:
    """The layout of each weight that saves most over the plain one at 1 to 64 rows, None if none
    does: the same for weights of one shape.

    They are multiplied in the order in which a forward pass does, as the first layers' weights, and
    what is between two of them, decide what a cache still holds of them: one weight alone, time
    after time, is fast in layouts that are slow in a model.

    Args:
        weights: each weight and its bias, in the order of the forward pass.
    """
    sample = sample_of(weights)
    forms = [PLAIN, TRANSPOSED, *([BLOCKED] if blocked_works() else [])]
    packed = {form: [form.pack(weight) for weight, _ in sample] for form in forms}
    seconds = {rows: _seconds(packed, sample, rows) for rows in BUCKETS}
    chosen: dict[Shape, Choice | None] = {}
    for shape in set(map(_shape, sample)):
        ratios = {
            form: [seconds[rows][form, shape] / seconds[rows][PLAIN, shape] for rows in BUCKETS]
            for form in forms[1:]
        }
        chosen[shape] = best_form(ratios)
    return [chosen[_shape(weight)] for weight in weights]


def _shape(weight: Weight) -> Shape:
    return weight[0].shape, weight[0].dtype, weight[1] is None


def sample_of(weights: Sequence[Weight]) -> list[Weight]:
    """The first weights, until they fill no cache, and the first of every shape."""
    sample: list[Weight] = []
    seen: set[Shape] = set()
    held = 0
    for weight in weights:
        if held < _ENOUGH or _shape(weight) not in seen:
            sample.append(weight)
            seen.add(_shape(weight))
            held += weight[0].nbytes
    return sample


def _seconds(
    packed: Mapping[Form, Sequence[torch.Tensor]],
    sample: Sequence[Weight],
    rows: int,
) -> dict[tuple[Form, Shape], float]:
    """Of all weights of a shape in a form, the median of a few passes through the sample."""
    inputs = {
        (w.shape[1], w.dtype): torch.ones((1, rows, w.shape[1]), dtype=w.dtype) for w, _ in sample
    }
    taken: defaultdict[tuple[Form, Shape], list[float]] = defaultdict(list)
    spent = 0.0
    for turn in range(_WARM_UP + _PASSES):
        for form, layouts in packed.items():
            took: defaultdict[Shape, float] = defaultdict(float)
            for (weight, bias), held in zip(sample, layouts, strict=True):
                x = inputs[weight.shape[1], weight.dtype]
                begin = time.perf_counter()
                form.apply(x, held, bias)
                took[_shape((weight, bias))] += time.perf_counter() - begin
            spent += sum(took.values())
            if turn >= _WARM_UP:
                for shape, total in took.items():
                    taken[form, shape].append(total)
        if turn >= _WARM_UP and spent > _LONG:
            break
    return {key: median(values) for key, values in taken.items()}


def best_form(ratios: Mapping[Form, Sequence[float]]) -> Choice | None:
    """The form that saves most and the buckets for which it does, given its time over the plain
    one's in every bucket."""
    best: Choice | None = None
    best_gain = _GAIN
    for form, found in ratios.items():
        for first, last in combinations(range(len(found) + 1), 2):
            gain = sum(1.0 - ratio for ratio in found[first:last])
            if gain > best_gain:
                best_gain = gain
                best = Choice(form, BUCKETS[first], (*BUCKETS, _END)[last])
    return best
