"""A tuner whose costs are true, and candidates with given probabilities."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fixed import FixedCosts
from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.features import SOURCES, TABLE, Codes
from draftwood.policies.auto.forecast import DraftForecast, Forecast
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.report import Report
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import (
    Bid,
    Outcome,
    Prediction,
    Price,
    RequestLoad,
    StepReport,
    StepTimes,
)
from draftwood.tree import ROOT, TokenTree, TreeBuilder
from tests.factories.scripted_sources import NO_ROWS

CODES = tuple(source.codes for source in SOURCES)
"""Number of codes of each source."""
BUCKETS = math.prod(CODES)

FLAT = Curve((1, 1000), (1.0, 1.0))
LINEAR = Curve((1, 1001), (1.0, 21.0))
"""A node costs a fiftieth of a step."""
STEEP = Curve((1, 2), (1.0, 2.0))
STEPPED = Curve((1, 4, 5, 12, 13, 64), (1.0, 1.0, 1.3, 1.3, 2.0, 2.0))
"""As where kernels work on tiles: nodes cost nothing up to the next one."""
CURVES = (FLAT, LINEAR, STEEP, STEPPED)

ONE = {"draft": DraftForecast()}
"""A neural drafter, of which each level is a forward."""


class Sure:
    """Every candidate is certain."""

    def probability(self, codes: Codes) -> float:
        return 1.0


class Settled(Pool):
    """So many candidates are drafted whatever the price."""

    settled = 0


def bid(
    *probabilities: float,
    limit: int = 1000,
    levels: tuple[int, ...] = (),
    settled: int = 0,
    worth: float = 1.0,
) -> Bid:
    """Candidates below the root, tokens 0, 1, ..., with these probabilities."""
    pool = Settled(99, Sure(), floor=0.0, most=1000)
    pool.settled = settled
    if probabilities:
        tokens = np.arange(len(probabilities))[None]
        pool.offer(TABLE, "table", [ROOT], tokens, np.zeros(tokens.shape, dtype=np.float32))
    pool.path[1:] = probabilities
    return bid_of(pool, limit, levels, worth)


def bid_of(
    pool: Pool, limit: int = 1000, levels: tuple[int, ...] = (), token_weight: float = 1.0
) -> Bid:
    """The bid that the policy makes for these candidates."""
    by_source = {"draft": levels} if levels else {}
    report = Report(pool, limit, token_weight)
    return Bid(report.values, pool.settled, by_source, report)


def tree_at(bid: Bid, price: Price) -> TokenTree:
    """The tree that the policy drafts at a price."""
    report: Report = bid.report
    return report.candidates.tree(report.chosen(price), "auto")


def codes_of(bid: Bid, committed: Sequence[int]) -> list[Codes]:
    """Features of the candidates that these tokens label."""
    report: Report = bid.report
    return report.labelled(committed)[0]


def outcome(tree: TokenTree, committed: Sequence[int]) -> Outcome:
    """A step that accepted what it drafted of these tokens."""
    path: list[int] = []
    for token in committed[:-1]:
        node = tree.child(path[-1] if path else ROOT, token)
        assert node is not None
        path.append(node)
    return Outcome(tree, tuple(path), tuple(committed), NO_ROWS)


def plain() -> TokenTree:
    return TreeBuilder(99).build("plain")


def chain(n: int) -> TokenTree:
    builder = TreeBuilder(99)
    builder.add_chain(range(n), "given")
    return builder.build("auto")


def tuner(costs: Curve | StepCosts = LINEAR, contexts: Sequence[int] = (10,)) -> AutoTuner:
    """At the beginning of a step of requests at temperature 0."""
    known = costs if isinstance(costs, StepCosts) else StepCosts(costs)
    made = AutoTuner(Calibration(), FixedCosts(known), ONE)
    begin(made, contexts)
    return made


def loads(contexts: Sequence[int], *temperatures: float) -> list[RequestLoad]:
    """Requests that differ in what is cached, and in their temperatures if any are given."""
    given = list(temperatures) or [0.0] * len(contexts)
    return [
        RequestLoad(context, 100, 1.0, each) for context, each in zip(contexts, given, strict=True)
    ]


def begin(of: AutoTuner, contexts: Sequence[int]) -> list[Forecast]:
    """A step of requests at temperature 0 whose tokens are worth the same."""
    return of.begin(loads(contexts))


def observe(
    of: AutoTuner, bids: Sequence[Bid | None], outcomes: Sequence[Outcome]
) -> list[Prediction | None]:
    """The step's seconds mean nothing where the costs are known."""
    return of.observe(StepReport(bids, outcomes, StepTimes(0.1, 0.1, 0.1)))


def run(
    of: AutoTuner,
    steps: int,
    bids: Sequence[Bid],
    taken: Sequence[Outcome],
    contexts: Sequence[int] = (10,),
) -> list[bool]:
    """Steps that all bid and take the same, if they search; which ones did."""
    searched = []
    undrafted = [replace(each, tree=plain(), path=()) for each in taken]
    for _ in range(steps):
        searched.append(begin(of, contexts)[0].floor <= 1.0)
        if searched[-1]:
            of.price(bids)
            observe(of, bids, taken)
        else:
            observe(of, [None] * len(bids), undrafted)
    return searched


def settle(of: AutoTuner, gain: int, batch: int = 1, steps: int = 200) -> None:
    """Plain steps that commit ``gain`` tokens a request, so that this is the rate."""
    for _ in range(steps):
        begin(of, [10] * batch)
        observe(of, [None] * batch, [outcome(chain(gain - 1), range(gain))] * batch)


def offered(bids: Sequence[Bid]) -> list[float]:
    """What candidates that may be taken are worth, best first."""
    return sorted((value for b in bids for value in b.values), reverse=True)


def admitted(bids: Sequence[Bid], price: Price) -> list[float]:
    """What is worth so much that the policies take it at that price."""
    found: list[float] = []
    for b in bids:
        pool: Pool = b.report.candidates
        paths = dict(zip(pool.builder.tokens, pool.path, strict=True))
        tokens = tree_at(b, price).tokens[1:].tolist()
        found += [b.report.token_weight * paths[t] for t in tokens]
    return sorted(found, reverse=True)
