"""Layouts of a weight matrix, and the timing that finds the fastest one on this machine."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import TypeAlias

import torch
from torch.nn.functional import linear as plain_linear

from draftwood.kernels.functions import kernels
from draftwood.runner.cpu import panels
from draftwood.runner.cpu.panels import PanelsLinear
from draftwood.runner.cpu.rows import RowsLinear

Weight: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
Shape: TypeAlias = tuple[torch.Size, torch.dtype, bool]

BUCKETS = (1, 2, 4, 8, 16, 64)
"""Numbers of rows of a step of decoding; a layout is chosen by them."""
PROMPTS = (96, 128, 192, 256, 512)
"""Numbers of rows of a prompt, or of a piece of one. The layout chosen is used for them while it is
faster than the plain one: a library's product may catch up as the rows become many."""
_ENDLESS = 1 << 40
_GAIN = 0.05
"""Least saving that justifies a layout's memory: share of the plain time, summed over buckets."""

_FUSING = 0.6
"""What the layouts of the kernels may lose against another, summed over buckets: only they let
whole layers be fused (:mod:`draftwood.runner.cpu.layers`)."""

_SMALL = 1 << 20
"""Bytes of a weight below which it has such a layout in any case: what is timed for so small a
product is mostly the call, which a fused layer does without."""

_ENOUGH = 1 << 26
"""Bytes of weights that exceed any CPU cache."""

_WARM_UP, _PASSES, _LONG = 1, 4, 0.5
"""Passes over the sample: uncounted, counted; and seconds after which no further pass begins. If
the first took as long, it counts."""


Linear: TypeAlias = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]
"""``(x, bias) -> x @ weight.T + bias``."""


def _always(weight: torch.Tensor) -> bool:  # noqa: ARG001
    return True


@dataclass(frozen=True)
class WeightLayout:
    """A layout: ``linear(pack(w))(x, bias)`` equals ``x @ w.T + bias`` up to rounding.

    Attributes:
        name: in files.
        pack: puts a weight into it.
        unpack: gives the weight back, bit for bit.
        linear: multiplies with a weight in it.
        fits: whether a weight can have it.
        moved: whether it is for weights that are moved into it: the kernels that read it do not
            look whether the weight it was copied from has changed. A copy of an embedding's has
            it as well: a layer with such a weight is not fused.
    """

    name: str
    pack: Callable[[torch.Tensor], torch.Tensor]
    unpack: Callable[[torch.Tensor], torch.Tensor]
    linear: Callable[[torch.Tensor], Linear]
    fits: Callable[[torch.Tensor], bool] = _always
    moved: bool = False

    @property
    def stored(self) -> bool:
        """Whether the layout is that in which the weight is stored."""
        return self.pack is _as_stored


@dataclass(frozen=True)
class LayoutChoice:
    """A layout, and the row counts ``low <= rows < high`` for which it is used."""

    layout: WeightLayout
    low: int = 0
    high: int = _ENDLESS


def _transpose(weight: torch.Tensor) -> torch.Tensor:
    return weight.t().contiguous().t()


def _block(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, 16)  # type: ignore[no-any-return]


def _unblock(weight: torch.Tensor) -> torch.Tensor:
    return weight.to_dense()


def _as_stored(weight: torch.Tensor) -> torch.Tensor:
    return weight


def _plain_linear(weight: torch.Tensor) -> Linear:
    return lambda x, bias: plain_linear(x, weight, bias)


def _blocked_linear(weight: torch.Tensor) -> Linear:
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda x, bias: multiply(x, weight, bias, "none", [], "")


PLAIN = WeightLayout("plain", _as_stored, _as_stored, _plain_linear)
TRANSPOSED = WeightLayout("transposed", _transpose, torch.Tensor.contiguous, _plain_linear)
BLOCKED = WeightLayout("blocked", _block, _unblock, _blocked_linear)
ROWS = WeightLayout("rows", _as_stored, _as_stored, RowsLinear)
PANELS = WeightLayout(
    "panels", panels.in_panels, panels.out_of_panels, PanelsLinear, panels.fits, moved=True
)
FUSED = (ROWS, PANELS)
"""The layouts that the kernels read, also those of whole layers."""


def layouts(weights: Sequence[Weight] = ()) -> list[WeightLayout]:
    """The layouts that work here for all of some weights, the plain one first.

    Args:
        weights: each weight and its bias; none: float32 ones.
    """
    dtypes = {weight.dtype for weight, _ in weights} or {torch.float32}
    blocked = [BLOCKED] if all(map(blocked_works, dtypes)) else []
    in_panels = [PANELS] if panels.panel_width() and torch.float32 in dtypes else []
    return [PLAIN, TRANSPOSED, *blocked, *([ROWS] if kernels() else []), *in_panels]


def blocked_works(dtype: torch.dtype) -> bool:
    """Whether this torch has oneDNN's private ops, and they work on this processor.

    For half precision they need AVX-512, for example.
    """
    try:
        weight = torch.eye(4, dtype=dtype, device="cpu")
        return torch.equal(_blocked_linear(_block(weight))(weight, None), weight)
    except (AttributeError, RuntimeError):
        return False


def fastest_layouts(weights: Sequence[Weight]) -> list[LayoutChoice | None]:
    """The layout of each weight that saves most time at 1 to 64 rows; None: the plain one.

    It is used for more rows as long as it is faster there too.

    Weights of one shape get the same layout. The weights are multiplied in the order of a forward
    pass, so that the CPU cache is in a realistic state: a weight that is timed alone is fast in
    layouts that are slow in a model.

    Args:
        weights: each weight and its bias, in the order of the forward pass.
    """
    sample = timing_sample(weights)
    tried = layouts(weights)
    linears = {layout: [_linear(layout, weight) for weight, _ in sample] for layout in tried}
    ratios = _ratios(linears, sample, BUCKETS)
    chosen: dict[Shape, LayoutChoice | None] = {}
    for shape, of_layouts in ratios.items():
        size = shape[0].numel() * shape[1].itemsize
        if ROWS not in tried or size >= _SMALL:
            chosen[shape] = best_layout(of_layouts)
            continue
        weight = next(w for w, b in sample if _shape((w, b)) == shape)
        fused = (each for each in FUSED if each in of_layouts and each.fits(weight))
        chosen[shape] = LayoutChoice(min(fused, key=lambda at: sum(of_layouts[at])), BUCKETS[0])
    # Others are not timed: some take a minute for a prompt in half precision.
    kept = {PLAIN} | {choice.layout for choice in chosen.values() if choice}
    linears = {layout: each for layout, each in linears.items() if layout in kept}
    for shape, of_layouts in _ratios(linears, sample, PROMPTS).items():
        chosen[shape] = up_to_prompts(chosen[shape], of_layouts)
    return [chosen[_shape(weight)] for weight in weights]


def _linear(layout: WeightLayout, weight: torch.Tensor) -> Linear:
    """The product in a layout; in the plain one, which is then the choice, if it does not fit."""
    own = layout if layout.fits(weight) else PLAIN
    return own.linear(own.pack(weight))


def up_to_prompts(
    choice: LayoutChoice | None, ratios: Mapping[WeightLayout, Sequence[float]]
) -> LayoutChoice | None:
    """The choice, for as many rows of a prompt as it is faster at.

    Args:
        choice: of :func:`best_layout`.
        ratios: of its layout, the time over the plain layout's at ``PROMPTS`` rows.
    """
    if choice is None or choice.high < _ENDLESS:
        return choice
    prompts = zip(PROMPTS, ratios[choice.layout], strict=True)
    slower = (rows for rows, ratio in prompts if ratio >= 1.0)
    return replace(choice, high=next(slower, _ENDLESS))


def _shape(weight: Weight) -> Shape:
    return weight[0].shape, weight[0].dtype, weight[1] is None


def timing_sample(weights: Sequence[Weight]) -> list[Weight]:
    """The first weights up to more than a CPU cache holds, and the first one of each shape."""
    sample: list[Weight] = []
    seen: set[Shape] = set()
    packed_bytes = 0
    for weight in weights:
        if packed_bytes < _ENOUGH or _shape(weight) not in seen:
            sample.append(weight)
            seen.add(_shape(weight))
            packed_bytes += weight[0].nbytes
    return sample


def _ratios(
    linears: Mapping[WeightLayout, Sequence[Linear]], sample: Sequence[Weight], sizes: Sequence[int]
) -> dict[Shape, dict[WeightLayout, list[float]]]:
    """By shape and layout, the time over the plain layout's at each number of rows."""
    seconds = [_seconds(linears, sample, rows) for rows in sizes]
    return {
        shape: {
            layout: [each[layout, shape] / each[PLAIN, shape] for each in seconds]
            for layout in linears
            if layout is not PLAIN
        }
        for shape in set(map(_shape, sample))
    }


def _seconds(
    linears: Mapping[WeightLayout, Sequence[Linear]],
    sample: Sequence[Weight],
    rows: int,
) -> dict[tuple[WeightLayout, Shape], float]:
    """Seconds of all weights of a shape in a layout: the median of a few passes over the sample."""
    inputs = {
        (w.shape[1], w.dtype): torch.ones((1, rows, w.shape[1]), dtype=w.dtype, device="cpu")
        for w, _ in sample
    }
    taken: defaultdict[tuple[WeightLayout, Shape], list[float]] = defaultdict(list)
    spent = 0.0
    for turn in range(_WARM_UP + _PASSES):
        if turn == _WARM_UP:  # the first passes did not take long
            taken.clear()
        for layout, each in linears.items():
            took: defaultdict[Shape, float] = defaultdict(float)
            for (weight, bias), linear in zip(sample, each, strict=True):
                x = inputs[weight.shape[1], weight.dtype]
                begin = time.perf_counter()
                linear(x, bias)
                took[_shape((weight, bias))] += time.perf_counter() - begin
            spent += sum(took.values())
            for shape, total in took.items():
                taken[layout, shape].append(total)
        if spent > _LONG:
            break
    return {key: median(values) for key, values in taken.items()}


def best_layout(ratios: Mapping[WeightLayout, Sequence[float]]) -> LayoutChoice | None:
    """The layout that saves most, and the buckets where it does.

    Args:
        ratios: for each layout and bucket, its time over the plain layout's.
    """
    best: LayoutChoice | None = None
    best_gain = _GAIN
    for layout, timed in ratios.items():
        for first, last in combinations(range(len(timed) + 1), 2):
            gain = sum(1.0 - ratio for ratio in timed[first:last])
            if layout in FUSED and last - first == len(timed):
                gain += _FUSING
            if gain > best_gain:
                best_gain = gain
                best = LayoutChoice(layout, BUCKETS[first], (*BUCKETS, _ENDLESS)[last])
    return best
