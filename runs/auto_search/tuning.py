"""Tuners that are told what ``auto``'s own has to learn, and that write down what it foretells.

Each is ``auto``'s own tuner with something put in its way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from draftwood.costs.curve import StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.lab.replay.pricing import PricedHost
from draftwood.policies.auto.features import Codes
from draftwood.protocols import Built, Host, Outcome
from draftwood.protocols.bids import Bid, Outlook, Price
from draftwood.protocols.tuning import Load, Spent, Tuner, TunerSpec
from runs.auto_search.ahead import Ahead
from runs.auto_search.judging import Judgement, Rates, Righted, judgement

SURVEY = 0.002
"""Path chance below which nobody here looks, however much is drafted."""


@dataclass(frozen=True)
class Clock:
    """What a tuner is told that a step took: modelled seconds, as if measured.

    Attributes:
        costs: by which time passes.
        noise: standard deviation of the logarithm of each measurement.
        seed: of the noise.
    """

    costs: StepCosts
    noise: float = 0.0
    seed: int = 0

    def read(
        self, bids: Sequence[Bid | None], sizes: Sequence[int], context: int, step: int
    ) -> Spent:
        """Of a step of one request."""
        (size,), (bid,) = sizes, bids
        factors = np.exp(self.noise * np.random.default_rng([self.seed, step]).normal(size=2))
        target = self.costs.target.seconds(size + 1, context) * factors[0]
        outside = (self.costs.fixed + self.costs.node * size) * factors[1]
        widths = bid.levels if bid is not None else ()
        levels = self.costs.drafters.values()
        drafting = sum(max((c.seconds(w, context) for c in levels), default=0.0) for w in widths)
        return Spent(drafting, target, outside)


@dataclass(frozen=True, eq=False)
class Told:
    """What is put in the way of a tuner; None: nothing.

    Attributes:
        rates: chances of candidates.
        floor: least path chance of a candidate.
        level: price of every draft forward, in tokens.
        clock: what steps took.
        righted: puts path chances right before their price is asked.
    """

    rates: Rates | None = None
    floor: float | None = None
    level: float | None = None
    clock: Clock | None = None
    righted: Righted | None = None


@dataclass(frozen=True, eq=False)
class _Outlook:
    inner: Outlook
    told: Told

    @property
    def worth(self) -> float:
        return self.inner.worth

    @property
    def floor(self) -> float:
        return self.inner.floor if self.told.floor is None else self.told.floor

    @property
    def price(self) -> float:
        return self.inner.price

    @property
    def coverage(self) -> float:
        return self.inner.coverage

    @property
    def catch_up(self) -> float:
        return self.inner.catch_up if self.told.level is None else 0.0

    def chance(self, codes: Codes) -> float:
        found = self.inner.chance(codes)
        return found if self.told.rates is None else self.told.rates.chance(codes, found)

    def level(self, width: int) -> float:
        return self.inner.level(width) if self.told.level is None else self.told.level


class Around:
    """A tuner around another one.

    Args:
        inner: learns.
        told: what is put in its way.
        ahead: follows the steps.

    Attributes:
        judgements: one a step that bid.
    """

    def __init__(self, inner: Tuner, told: Told, ahead: Ahead) -> None:
        self.inner = inner
        self.judgements: list[Judgement] = []
        self._told = told
        self._ahead = ahead
        self._outlooks: list[Outlook] = []
        self._steps = 0
        ahead.restart()

    def begin(self, loads: Sequence[Load], *, queued: bool) -> Sequence[Outlook | None]:
        """What the inner one expects, with what is told instead."""
        self._ahead.begin([load.cached for load in loads])
        self._steps += 1
        found = self.inner.begin(loads, queued=queued)
        self._outlooks = [_Outlook(each, self._told) for each in found if each is not None]
        return self._outlooks

    def price(self, bids: Sequence[Bid]) -> Price:
        """The inner one's, once paths are put right if that is told."""
        if self._told.righted is not None:
            for bid in bids:
                bid.pool.path[1:] = self._told.righted(np.array(bid.pool.path[1:])).tolist()
        return self.inner.price(bids)

    def observe(
        self,
        bids: Sequence[Bid | None],
        outcomes: Sequence[Outcome],
        spent: Spent,
    ) -> Any:
        """What the inner one says; the candidates are written down before it learns of them."""
        for bid, outcome, outlook in zip(bids, outcomes, self._outlooks, strict=True):
            if bid is not None:
                self.judgements.append(judgement(bid, outcome, outlook, self._ahead))
        if self._told.clock is not None:
            sizes = [outcome.tree.drafted for outcome in outcomes]
            clock, context = self._told.clock, self._ahead.length
            spent = clock.read(bids, sizes, context, self._steps)
        (outcome,) = outcomes
        self._ahead.passed(len(outcome.committed))
        return self.inner.observe(bids, outcomes, spent)


@dataclass(eq=False)
class Making:
    """Settings of a tuner that is made by ``make`` for every engine.

    Attributes:
        make: makes it, from what an engine gives.
        last: the one of the last engine.
    """

    make: Callable[[Host, Mapping[str, Built]], Around]
    last: Around | None = field(default=None, init=False)

    def build(self, host: Host, drafters: Mapping[str, Built]) -> Around:
        """A fresh tuner."""
        self.last = self.make(host, drafters)
        return self.last


def around(spec: TunerSpec, told: Told, ahead: Ahead) -> Making:
    """A tuner as the settings have it, with something put in its way."""
    return Making(lambda host, drafters: Around(spec.build(host, drafters), told, ahead))


def kept(inner: Callable[[], Tuner | None], spec: TunerSpec, ahead: Ahead) -> Making:
    """The tuner that ``inner`` hands over, already taught; a fresh one if it has none."""
    return Making(
        lambda host, drafters: Around(inner() or spec.build(host, drafters), Told(), ahead)
    )


@dataclass(frozen=True, eq=False)
class Learning(PricedHost):
    """A host whose costs are a first guess, to be refined by what steps take."""

    def costs(self, drafters: Mapping[str, Built]) -> LiveCosts:  # noqa: ARG002
        """A guess that follows the steps."""
        return LiveCosts(self.given)


def learning(spec: TunerSpec, first: StepCosts, clock: Clock, ahead: Ahead) -> Making:
    """A tuner that starts from a guess of the costs and learns them by the clock."""
    return Making(
        lambda host, drafters: Around(
            spec.build(Learning(host, first), drafters), Told(clock=clock), ahead
        )
    )
