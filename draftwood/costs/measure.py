"""Times forwards of a live target, and levels of a live drafter, within a bound.

Sizes take turns, so that a slow phase of a noisy machine falls on all of them alike; the first
forward of each size is a warm-up, and of the others the lower quartile counts: what disturbs a
machine only ever adds time, so three forwards in four may be disturbed before it moves.
A forward ends when its result is on the host and the device has nothing left to do: wall-clock
seconds, launching included, because that is what a step waits for. Knows no policy and no engine.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise, product
from time import perf_counter
from typing import TypeAlias

import numpy as np
import torch

from draftwood.costs.fit import Sample
from draftwood.errors import DraftwoodError
from draftwood.protocols import Drafter, Expand, Needs, Prefill, Target
from draftwood.tree import ROOT, TokenTree, TreeBuilder

logger = logging.getLogger(__name__)

Clock: TypeAlias = Callable[[], float]
Cell: TypeAlias = tuple[int, int, int]
"""Tokens of one sequence, cached tokens of one sequence, sequences."""
Probe: TypeAlias = Callable[[], float]
"""Runs a forward and returns its seconds."""

SHORTEST = 3
"""Tokens of the shortest context in which forwards can be timed: one that is cached, and a tree of
two. A shorter one has no room for a draft either."""

_CHILDREN = 8
"""Children asked for of each node of a drafter's level."""
_QUANTILE = 0.25
_SHARE = 0.5
"""Of the time, what filling the caches may take before larger contexts are left out."""


@dataclass(frozen=True)
class Grid:
    """Which forwards are timed.

    Attributes:
        sizes: tokens of each sequence's tree, root included.
        contexts: cached tokens of each sequence.
        batches: sequences.
        seconds: how long all of it may take, filling the caches included. Whatever it is, two
            sizes are timed once.

    Raises:
        DraftwoodError: one of these is empty, does not ascend, or is below 1.
    """

    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    contexts: tuple[int, ...] = (64, 512)
    batches: tuple[int, ...] = (1,)
    seconds: float = 2.0

    def __post_init__(self) -> None:
        for name in ("sizes", "contexts", "batches"):
            values = getattr(self, name)
            if not values or values[0] < 1 or any(a >= b for a, b in pairwise(values)):
                raise DraftwoodError(f"{name} are {values}: give numbers above 0, ascending")
        if len(self.sizes) < 2:
            raise DraftwoodError(f"sizes are {self.sizes}: give two or more")
        if not self.seconds > 0.0:
            raise DraftwoodError(f"costs are measured for {self.seconds} seconds: give more than 0")

    def fitted(self, limit: int) -> "Grid":
        """The same for a model that reaches ``limit`` tokens: trees of at most half of that, and
        contexts that fit beside the largest, or all that it leaves.

        Raises:
            DraftwoodError: the limit is below :data:`SHORTEST`.
        """
        if limit < SHORTEST:
            raise DraftwoodError(
                f"no tree fits a context of {limit} tokens: costs need at least {SHORTEST}"
            )
        sizes = tuple(size for size in self.sizes if size <= limit // 2)
        if len(sizes) < 2:
            sizes = (1, 2)
        left = limit - sizes[-1]
        contexts = tuple(c for c in self.contexts if c <= left) or (left,)
        return Grid(sizes, contexts, self.batches, self.seconds)


class NoLevelError(DraftwoodError):
    """A drafter ran no forward where a level of it was to be timed."""


def measure_target(
    target: Target, grid: Grid, needs: Needs | None = None, clock: Clock = perf_counter
) -> list[Sample]:
    """Time the target's forward, of every size at every context and batch of the grid.

    Args:
        target: a live one; slots are opened and given back.
        grid: what to time. Contexts that would take too long to fill are left out.
        needs: what drafters want handed over with every row, which takes time as well.
        clock: seconds.

    Raises:
        DraftwoodError: a context does not fit the model.
    """
    needs, deadline = needs or Needs(), clock() + grid.seconds
    _check_room(target, grid)
    vocab = target.info.vocab_size
    probes: dict[Cell, Probe] = {}
    with ExitStack() as stack:
        for context, slots, _ in _fill(target, grid, Needs(), deadline, clock, stack):
            for batch, size in product(grid.batches, grid.sizes):
                tree = heap(size, vocab)
                probes[size, context, batch] = _forward(
                    target, slots[:batch], [tree] * batch, needs, clock
                )
        return take_turns(probes, deadline, clock)


def measure_levels(
    drafter: Drafter, source: str, target: Target, grid: Grid, clock: Clock = perf_counter
) -> list[Sample]:
    """Time one level of a drafter with a model: the forward and the ranking of its children.

    Args:
        drafter: a live one, beside ``target``.
        source: its name, which queries carry.
        target: fills the caches.
        grid: what to time; sizes are nodes of a level.
        clock: seconds.

    Raises:
        DraftwoodError: a context does not fit the target.
        NoLevelError: the drafter runs no model there: it has none, or its own context is shorter.
    """
    deadline = clock() + grid.seconds
    _check_room(target, grid)
    probes: dict[Cell, Probe] = {}
    with ExitStack() as stack:
        for context, slots, begun in _fill(target, grid, drafter.needs, deadline, clock, stack):
            for slot, prefill in zip(slots, begun, strict=True):
                drafter.begin(slot, prefill)
                stack.callback(drafter.release, slot)
            for batch, width in product(grid.batches, grid.sizes):
                level = _Level(drafter, source, target, slots[:batch], width, clock)
                probes[width, context, batch] = level
        return take_turns(probes, deadline, clock)


def measure_reached(
    drafter: Drafter, source: str, target: Target, grid: Grid, clock: Clock = perf_counter
) -> list[Sample]:
    """The same at contexts that the drafter's own model reaches, if need be shorter ones.

    Returns:
        Empty if its context is too short to draft at all.

    Raises:
        DraftwoodError: a context does not fit the target.
    """
    while True:
        try:
            return measure_levels(drafter, source, target, grid, clock)
        except NoLevelError:
            shorter = grid.contexts[:-1] or (grid.contexts[0] // 2,)
            if shorter[0] < 1:
                return []
            grid = replace(grid, contexts=shorter)


def take_turns(probes: Mapping[Cell, Probe], deadline: float, clock: Clock) -> list[Sample]:
    """Run the probes in rounds until the deadline; lower quartiles without the first round.

    Those that the first round did not come to before the deadline have no sample; the first two
    always have.
    """
    times: dict[Cell, list[float]] = {}
    rounds = 0
    while not rounds or clock() < deadline:
        for i, (cell, probe) in enumerate(probes.items()):
            if clock() >= deadline and (rounds or i >= 2):
                break
            times.setdefault(cell, []).append(probe())
        rounds += 1
    if len(times) < len(probes):
        logger.info("%d of %d sizes could be timed", len(times), len(probes))
    return [
        Sample(
            size * batch, context * batch, batch, float(np.quantile(found[1:] or found, _QUANTILE))
        )
        for (size, context, batch), found in times.items()
    ]


def heap(size: int, vocab: int) -> TokenTree:
    """A binary tree of ``size`` nodes, filled level by level."""
    builder = TreeBuilder(0)
    for i in range(1, size):
        builder.add((i - 1) // 2, i % vocab, "timing")
    return builder.build()


class _Level:
    """Times the second level of a tree, both of whose levels have ``width`` nodes.

    The first level is forwarded together with what was committed before it, and is not timed.
    """

    def __init__(
        self,
        drafter: Drafter,
        source: str,
        target: Target,
        slots: Sequence[int],
        width: int,
        clock: Clock,
    ) -> None:
        self._drafter = drafter
        self._source = source
        self._info = target.info
        self._slots = slots
        self._width = width
        self._clock = clock

    def __call__(self) -> float:
        trees = [TreeBuilder(0) for _ in self._slots]
        above, vocab = [ROOT] * self._width, self._info.vocab_size
        for timed in (False, True):
            for tree in trees:
                below = [
                    tree.add(parent, i % vocab, self._source) for i, parent in enumerate(above)
                ]
            above = below  # the same in every tree
            k = min(_CHILDREN, vocab)
            queries = [Expand(self._source, tree, above, k) for tree in trees]
            before, start = self._drafter.forwards, self._clock()
            self._drafter.expand(self._slots, queries)
            _settle(self._info.device)
            seconds = self._clock() - start
            if timed and self._drafter.forwards != before + 1:
                raise NoLevelError(
                    f"drafter {self._source!r} ran no forward for a level: it has no model, or "
                    "the measured context is beyond its own"
                )
        return seconds


def _forward(
    target: Target, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs, clock: Clock
) -> Probe:
    device = target.info.device

    def probe() -> float:
        start = clock()
        target.forward(slots, trees, needs)
        _settle(device)
        return clock() - start

    return probe


def _settle(device: torch.device) -> None:
    """Wait until the device has nothing left to do; a CPU never has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _fill(
    target: Target, grid: Grid, needs: Needs, deadline: float, clock: Clock, stack: ExitStack
) -> Iterator[tuple[int, list[int], list[Prefill]]]:
    """Slots that hold a context each, smallest first, as long as time allows; with their rows."""
    vocab, begin, seen, sequences = target.info.vocab_size, clock(), 0, grid.batches[-1]
    for context in grid.contexts:
        spent = clock() - begin
        if seen and spent / seen * (seen + context) > _SHARE * (deadline - begin):
            logger.info("contexts from %d tokens on would take too long to measure", context)
            return
        slots = []
        for _ in range(sequences):
            slots.append(target.open(context + grid.sizes[-1]))
            stack.callback(target.release, slots[-1])
        prompt = np.arange(context) % vocab
        rows = target.prefill(slots, [prompt.tolist()] * sequences, needs)
        _settle(target.info.device)
        seen += context
        yield context, slots, [Prefill(prompt, 0, found) for found in rows]


def _check_room(target: Target, grid: Grid) -> None:
    limit, most = target.info.context_limit, grid.contexts[-1] + grid.sizes[-1]
    if most > limit:
        raise DraftwoodError(
            f"{grid.contexts[-1]} cached tokens and {grid.sizes[-1]} more do not fit a context of "
            f"{limit} tokens: measure fewer"
        )
