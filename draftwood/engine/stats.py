"""Statistics of a step, and the sums that the field's metrics are made of.

Definitions: a *step* is one target call after prefill; *mean acceptance length* is committed
tokens per step, the bonus included, the prefill's token and tokens cut off by a stop or a limit
not counted; *acceptance rate* is accepted drafted tokens per drafted token; *draft efficiency* is
draft forwards per target forward.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from draftwood.protocols import Prediction, StepTimes
from draftwood.tree import TokenTree


@dataclass(frozen=True, eq=False)
class StepStats:
    """One step of one request.

    Attributes:
        tree: what was verified.
        path: accepted nodes, before any cut.
        committed: tokens committed, after any cut.
        times: of the whole batch's step.
        batch: number of requests that shared the step.
        draft_calls: forward passes of draft models, shared by the batch as well.
        prediction: the tuner's, with the labels of its candidates; None without one.
    """

    tree: TokenTree
    path: tuple[int, ...]
    committed: int
    times: StepTimes
    batch: int
    draft_calls: int = 0
    prediction: Prediction | None = None

    @property
    def expected(self) -> float | None:
        """Tokens that the step was predicted to commit; None without a prediction."""
        return None if self.prediction is None else self.prediction.tokens

    # These are made once for all tallies that the step is added to.

    @cached_property
    def kind(self) -> str:
        """Sources along the accepted path, e.g. ``"context+adjacency"``; empty if none."""
        return "+".join(self.accepted_by_source)

    @cached_property
    def drafted_by_source(self) -> Counter[str]:
        """Drafted tokens."""
        return Counter(self.tree.sources[1:])

    @cached_property
    def accepted_by_source(self) -> Counter[str]:
        """Accepted drafted tokens, in the order of the path."""
        return Counter([self.tree.sources[i] for i in self.path])

    @cached_property
    def seconds(self) -> dict[str, Any]:
        """The request's equal share of the times, by phase."""
        return {phase: whole / self.batch for phase, whole in vars(self.times).items()}


@dataclass
class Tally:
    """Sums over steps; tallies of several requests can be added up with :meth:`merge`."""

    steps: int = 0
    committed: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_by_source: Counter[str] = field(default_factory=Counter)
    accepted_by_source: Counter[str] = field(default_factory=Counter)
    reached_by_depth: Counter[int] = field(default_factory=Counter)
    offered_by_depth: Counter[int] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    draft_calls: int = 0

    def add(self, step: StepStats) -> None:
        """Count one step. Times are shared equally among the requests of the batch."""
        self.steps += 1
        self.committed += step.committed
        self.drafted += step.tree.drafted
        self.accepted += len(step.path)
        self.draft_calls += step.draft_calls
        if step.tree.drafted:  # counters are slow enough for a plain step to notice
            self.drafted_by_source.update(step.drafted_by_source)
            self.accepted_by_source.update(step.accepted_by_source)
            self.offered_by_depth.update(range(1, step.tree.depth + 1))
            self.reached_by_depth.update(range(1, len(step.path) + 1))
        self.routes[step.tree.route] += 1
        self.kinds[step.kind] += 1
        for phase, seconds in step.seconds.items():
            self.seconds[phase] += seconds

    def merge(self, other: "Tally") -> None:
        """Add another tally's sums to this one's."""
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, name, mine + theirs)

    @property
    def mean_acceptance_length(self) -> float:
        """τ: committed tokens per target call (NaN before the first step)."""
        return self.committed / self.steps if self.steps else float("nan")

    @property
    def acceptance_rate(self) -> float:
        """Accepted per drafted token (NaN if nothing was drafted)."""
        return self.accepted / self.drafted if self.drafted else float("nan")

    @property
    def draft_efficiency(self) -> float:
        """δ: draft forwards per target forward (0 for drafters without a model)."""
        return self.draft_calls / self.steps if self.steps else float("nan")

    def acceptance_of(self, source: str) -> float:
        """Accepted per drafted token of one source (NaN if it offered none)."""
        drafted = self.drafted_by_source[source]
        return self.accepted_by_source[source] / drafted if drafted else float("nan")

    def acceptance_by_depth(self) -> dict[int, float]:
        """For each depth: the share of steps that drafted so deep whose path reached it."""
        return {
            depth: self.reached_by_depth[depth] / offered
            for depth, offered in sorted(self.offered_by_depth.items())
        }
