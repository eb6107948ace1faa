"""Times forwards of a target and levels of a drafter, within a time limit.

Sizes are timed in rounds, so that a slow phase of the machine affects all of them alike. The first
forward of each size is a warm-up. The lower quartile of the others counts: disturbances only add
time, so three forwards in four may be disturbed before the result changes. Times are wall-clock
seconds, launching included, until the result is on the host and the device is idle.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise, product
from time import perf_counter
from typing import TypeAlias

import numpy as np
import torch

from draftwood import recordings
from draftwood.costs.fit import Sample
from draftwood.errors import DraftwoodError
from draftwood.protocols import Drafter, Expand, Needs, Outcome, Prefill, Target
from draftwood.tree import ROOT, TokenTree, TreeBuilder

logger = logging.getLogger(__name__)

Clock: TypeAlias = Callable[[], float]
GridPoint: TypeAlias = tuple[int, int, int]
"""Tokens of one sequence, cached tokens of one sequence, sequences."""
Probe: TypeAlias = Callable[[], float]
"""Runs a forward and returns its seconds."""

SHORTEST = 3
"""Tokens of the shortest context in which forwards can be timed: one cached, and a tree of two."""

SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 13, 16, 17, 24, 32, 33, 48, 64)
"""Tokens of the forwards from which the costs of steps are known. Kernels work on groups of rows:
often a forward of one row more than such a group takes as long as one of the next group."""

PROMPTS = (16, 64, 128, 256, 512)
"""Tokens of the prompts from which the cost of a prompt is known."""

_ROUNDS = 64
"""Most rounds of forwards."""

_CHILDREN = 8
"""Children requested for each node of a drafter's level."""
_MOST_GROWN = 16
"""Most tokens that a text is longer than its sample says."""

_QUANTILE = 0.25
_SHARE = 0.5
"""Share of the time that filling caches may take before larger contexts are left out."""


@dataclass(frozen=True)
class Grid:
    """The sizes of forwards to time.

    Attributes:
        sizes: tokens of each sequence's tree, root included.
        contexts: cached tokens of each sequence.
        batches: numbers of sequences.
        seconds: time limit, filling the caches included. Two sizes are always timed once.
        thin: in contexts beyond the first, which tell what a cached token costs, one size in so
            many is timed.

    Raises:
        DraftwoodError: one of these is empty, does not ascend, or is below 1.
    """

    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    contexts: tuple[int, ...] = (64, 512)
    batches: tuple[int, ...] = (1,)
    seconds: float = 2.0
    thin: int = 1

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
        """The grid cut to a context of ``limit`` tokens.

        Trees take at most half of it, and contexts fit beside the largest tree.

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
        return replace(self, sizes=sizes, contexts=contexts)

    def sizes_at(self, context: int) -> tuple[int, ...]:
        """The sizes that are timed in a context."""
        return self.sizes if context == self.contexts[0] else self.sizes[:: self.thin]


USUAL = Grid(SIZES, seconds=4.0, thin=4)
"""What is timed on first use."""


class _NoForwardError(Exception):
    """A drafter ran no forward when a level was to be timed: its context is shorter."""


def measure_target(
    target: Target, grid: Grid, needs: Needs | None = None, clock: Clock = perf_counter
) -> list[Sample]:
    """Time the target's forward at every point of the grid.

    Args:
        target: its slots are released afterwards.
        grid: what to time. Contexts that would take too long to fill are left out.
        needs: what drafters want computed with every row; it takes time as well.
        clock: seconds.

    Raises:
        DraftwoodError: a context does not fit the model.
    """
    needs, deadline = needs or Needs(), clock() + grid.seconds
    vocab = target.info.vocab_size
    probes: dict[GridPoint, Probe] = {}
    with ExitStack() as stack:
        for context, slots, _ in _fill(target, grid, Needs(), deadline, clock, stack):
            for batch, size in product(grid.batches, grid.sizes_at(context)):
                tree = binary_tree(size, vocab)
                probes[size, context, batch] = _forward(
                    target, slots[:batch], [tree] * batch, needs, clock
                )
        return time_in_rounds(probes, deadline, clock, warm=_compiles(target))


def measure_prompts(
    target: Target, needs: Needs, seconds: float = 2.0, clock: Clock = perf_counter
) -> list[Sample]:
    """Time how long prompts take to be cached, shortest first while there is time.

    Args:
        target: its slots are released afterwards.
        needs: what drafters want of the prompts: the output of all of their tokens takes time.
        seconds: time limit; a longer prompt that would not end within it is left out.
        clock: seconds.

    Returns:
        Nothing if the model's context holds none of :data:`PROMPTS`.
    """
    found: list[Sample] = []
    most = target.info.context_limit
    for tokens in (tokens for tokens in PROMPTS if tokens < most):
        if found and found[-1].seconds * tokens / found[-1].tokens > seconds:
            break
        prompt = (np.arange(tokens) % target.info.vocab_size).tolist()
        times = []
        for _ in range(2):  # the first one warms up
            slot = target.open(tokens + 1)
            begin = clock()
            target.prefill([slot], [prompt], needs)
            _synchronize(target.info.device)
            times.append(clock() - begin)
            target.release(slot)
        found.append(Sample(tokens, 0, 1, min(times)))
    return found


def measure_levels(
    drafter: Drafter, source: str, target: Target, grid: Grid, clock: Clock = perf_counter
) -> list[Sample]:
    """Time one level of a drafter with a model: the forward and the ranking of the children.

    Contexts become shorter until the draft model's own context holds them.

    Args:
        drafter: built for ``target``.
        source: its name in queries.
        target: fills the caches.
        grid: what to time; sizes are nodes of a level.
        clock: seconds.

    Returns:
        Nothing if the drafter's context is too short to draft at all, or it has no model.

    Raises:
        DraftwoodError: a context does not fit the target.
    """
    while True:
        try:
            return _measured_levels(drafter, source, target, grid, clock)
        except _NoForwardError:
            shorter = grid.contexts[:-1] or (grid.contexts[0] // 2,)
            if shorter[0] < 1:
                return []
            grid = replace(grid, contexts=shorter)


def _measured_levels(
    drafter: Drafter, source: str, target: Target, grid: Grid, clock: Clock
) -> list[Sample]:
    deadline = clock() + grid.seconds
    probes: dict[GridPoint, Probe] = {}
    grown = Counter[int]()
    with ExitStack() as stack:
        for context, slots, begun in _fill(target, grid, drafter.needs, deadline, clock, stack):
            texts = dict(zip(slots, begun, strict=True))
            for slot, prefill in texts.items():
                drafter.begin(slot, prefill)
                stack.callback(drafter.release, slot)
            points = list(product(grid.batches, grid.sizes_at(context)))
            if drafter.at_once:
                for batch, width in points:
                    some = {slot: texts[slot] for slot in slots[:batch]}
                    level = _all_levels(drafter, source, target, some, grown, clock)
                    probes[width, context, batch] = level
                continue
            tokens = _likely(drafter, source, slots[0], target.info.vocab_size, grid.sizes[-1])
            for batch, width in points:
                above = [tokens[i % len(tokens)] for i in range(width)]
                level = _level(drafter, source, target, slots[:batch], above, clock)
                probes[width, context, batch] = level
        return time_in_rounds(probes, deadline, clock, warm=_compiles(target))


def time_in_rounds(
    probes: Mapping[GridPoint, Probe], deadline: float, clock: Clock, *, warm: bool = False
) -> list[Sample]:
    """Run the probes in rounds until the deadline; returns lower quartiles after the first round.

    Every probe gets about the same share of the time, so that those that take little of it, whose
    times differ by little, are repeated more often.

    The very first call is not timed: of a slow model there may be no second round. Probes that the
    first round did not reach before the deadline have no sample. The first two always have one.

    Args:
        probes: by what they time.
        deadline: on the clock.
        clock: seconds.
        warm: call each probe once before, not only the first one: on a GPU a forward of new shapes
            compiles kernels and is recorded. The deadline waits for these calls.
    """
    begin = clock()
    with recordings.at_once():
        for probe in [*probes.values()][: None if warm else 1]:
            probe()
    deadline += clock() - begin
    times: dict[GridPoint, list[float]] = {}
    rounds = 0
    while not rounds or (rounds < _ROUNDS and clock() < deadline):
        # The first forward of each does not count here either.
        spent = {point: sum(found[1:]) for point, found in times.items()}
        share = sum(spent.values()) / max(1, len(spent))
        for i, (point, probe) in enumerate(probes.items()):
            if clock() >= deadline and (rounds or i >= 2):
                break
            if spent.get(point, 0.0) <= share:
                times.setdefault(point, []).append(probe())
        rounds += 1
    if len(times) < len(probes):
        logger.info("%d of %d sizes could be timed", len(times), len(probes))
    return [
        Sample(
            size * batch, context * batch, batch, float(np.quantile(found[1:] or found, _QUANTILE))
        )
        for (size, context, batch), found in times.items()
    ]


def binary_tree(size: int, vocab: int) -> TokenTree:
    """A binary tree of ``size`` nodes, filled level by level."""
    builder = TreeBuilder(0)
    for i in range(1, size):
        builder.add((i - 1) // 2, i % vocab, "timing")
    return builder.build()


def _likely(drafter: Drafter, source: str, slot: int, vocab: int, count: int) -> list[int]:
    """Different tokens, ``count`` or all: those that a drafter proposes first, then any.

    A draft model with another tokenizer reads a token that it does not propose as several.
    """
    tree, nodes, found = TreeBuilder(0), [ROOT], dict[int, None]()
    for _ in range(2):
        query = Expand(source, tree, nodes, min(_CHILDREN, vocab))
        [answer] = drafter.expand([slot], [query])
        tokens = [token for token in answer.tokens.ravel().tolist() if token >= 0]
        found |= dict.fromkeys(tokens)
        nodes = [tree.add(ROOT, token, source) for token in dict.fromkeys(tokens)]
        if not nodes:
            break
    return [*(found | dict.fromkeys(range(min(count, vocab))))][:count]


def _level(
    drafter: Drafter,
    source: str,
    target: Target,
    slots: Sequence[int],
    tokens: Sequence[int],
    clock: Clock,
) -> Probe:
    """Times the second of two levels of nodes with these tokens.

    The first level is forwarded together with earlier committed tokens and is not timed.
    """
    vocab, device = target.info.vocab_size, target.info.device

    def probe() -> float:
        trees = [TreeBuilder(0) for _ in slots]
        above = [ROOT] * len(tokens)
        for _ in range(2):
            for tree in trees:
                pairs = zip(above, tokens, strict=True)
                below = [tree.add(parent, token, source) for parent, token in pairs]
            above = below  # the same in every tree
            queries = [Expand(source, tree, above, min(_CHILDREN, vocab)) for tree in trees]
            before, start = drafter.forwards, clock()
            drafter.expand(slots, queries)
            _synchronize(device)
            seconds = clock() - start
        if drafter.forwards != before + 1:
            raise _NoForwardError
        return seconds

    return probe


def _all_levels(
    drafter: Drafter,
    source: str,
    target: Target,
    texts: Mapping[int, Prefill],
    grown: Counter[int],
    clock: Clock,
) -> Probe:
    """Times the one forward of a step, for some slots with their prefills.

    It follows a step that has committed one token, so that the drafter reads as much as it does
    after a usual step. ``grown`` counts these by slot: texts that have grown much are begun anew.
    """
    slots, device = [*texts], target.info.device
    steps = {slot: _committed(prefill) for slot, prefill in texts.items()}
    children = min(_CHILDREN, target.info.vocab_size)

    def expand() -> None:
        drafter.expand(slots, [Expand(source, TreeBuilder(0), [ROOT], children) for _ in slots])

    def probe() -> float:
        if any(grown[slot] >= _MOST_GROWN for slot in slots):
            for slot in slots:
                drafter.release(slot)
                drafter.begin(slot, texts[slot])
                grown[slot] = 0
            expand()  # reads the prompts
        for slot in slots:
            drafter.observe(slot, steps[slot])
            grown[slot] += 1
        _synchronize(device)
        before, start = drafter.forwards, clock()
        expand()
        _synchronize(device)
        seconds = clock() - start
        if drafter.forwards != before + 1:
            raise _NoForwardError
        return seconds

    return probe


def _committed(prefill: Prefill) -> Outcome:
    """A step of the first token alone, with the features of the prompt's last one."""
    rows = prefill.rows
    features = None if rows.features is None else rows.features[-1:]
    own = replace(rows, features=features)
    return Outcome(TreeBuilder(prefill.first).build(), (), (prefill.first,), own)


def _forward(
    target: Target, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs, clock: Clock
) -> Probe:
    device = target.info.device

    def probe() -> float:
        start = clock()
        target.submit(slots, trees, needs).rows()
        _synchronize(device)
        return clock() - start

    return probe


def _compiles(target: Target) -> bool:
    """Whether the first forward of a shape takes longer than the others."""
    return target.info.device.type != "cpu"


def _synchronize(device: torch.device) -> None:
    """Wait until the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _fill(
    target: Target, grid: Grid, needs: Needs, deadline: float, clock: Clock, stack: ExitStack
) -> Iterator[tuple[int, list[int], list[Prefill]]]:
    """Contexts, smallest first while time allows, with slots that hold them and their prefills."""
    limit, most = target.info.context_limit, grid.contexts[-1] + grid.sizes[-1]
    if most > limit:
        raise DraftwoodError(
            f"{grid.contexts[-1]} cached tokens and {grid.sizes[-1]} more do not fit a context of "
            f"{limit} tokens: measure fewer"
        )
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
        _synchronize(target.info.device)
        seen += context
        yield context, slots, [Prefill(prompt, 0, found) for found in rows]
