"""A tuner whose costs are true, and candidates with given chances."""

from collections.abc import Sequence

import numpy as np

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.features import Codes, Voice
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import Outcome
from draftwood.protocols.bids import Bid, Price
from draftwood.protocols.tuning import Foretold, Load, Spent
from draftwood.tree import ROOT, TokenTree, TreeBuilder
from draftwood.tuners.learnt import Expectations, Tuner
from tests.factories.scripted_sources import NO_ROWS

FLAT = Curve((1, 1000), (1.0, 1.0))
LINEAR = Curve((1, 1001), (1.0, 21.0))
"""A node costs a fiftieth of a step."""
STEEP = Curve((1, 2), (1.0, 2.0))
STEPPED = Curve((1, 4, 5, 12, 13, 64), (1.0, 1.0, 1.3, 1.3, 2.0, 2.0))
"""As where kernels work on tiles: nodes cost nothing up to the next one."""
CURVES = (FLAT, LINEAR, STEEP, STEPPED)


class TrueCosts(LiveCosts):
    """Costs that are true and need no steps to tell."""

    def observe(self, *step: float) -> None: ...

    def grown(self, *step: float) -> None: ...


class Sure:
    """Every candidate is certain."""

    def chance(self, codes: Codes) -> float:
        return 1.0


class Settled(Pool):
    """So many candidates are drafted whatever the price."""

    settled = 0


def bid(
    *chances: float,
    limit: int = 1000,
    levels: tuple[int, ...] = (),
    settled: int = 0,
    worth: float = 1.0,
) -> Bid:
    """Candidates below the root, tokens 0, 1, ..., with these chances."""
    pool = Settled(99, Sure(), floor=0.0, most=1000)
    pool.settled = settled
    if chances:
        tokens = np.arange(len(chances))[None]
        pool.offer(Voice.TABLE, "table", [ROOT], tokens, np.zeros(tokens.shape, dtype=np.float32))
    pool.path[1:] = chances
    return Bid(pool, limit, levels, worth)


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


def tuner(costs: Curve | StepCosts = LINEAR, contexts: Sequence[int] = (10,)) -> Tuner:
    """At the beginning of a step of requests at temperature 0."""
    known = costs if isinstance(costs, StepCosts) else StepCosts(costs)
    made = Tuner(Calibration(), TrueCosts(known))
    begin(made, contexts)
    return made


def loads(contexts: Sequence[int], *temperatures: float) -> list[Load]:
    """Requests that differ in what is cached, and in their temperatures if any are given."""
    given = list(temperatures) or [0.0] * len(contexts)
    return [Load(context, 100, 1.0, each) for context, each in zip(contexts, given, strict=True)]


def begin(of: Tuner, contexts: Sequence[int]) -> list[Expectations]:
    """A step of requests at temperature 0 whose tokens are worth the same."""
    return of.begin(loads(contexts), queued=False)


def observe(
    of: Tuner, bids: Sequence[Bid | None], outcomes: Sequence[Outcome]
) -> list[Foretold | None]:
    """The step's seconds mean nothing where the costs are known."""
    return of.observe(bids, outcomes, Spent(0.1, 0.1, 0.1))


def settle(of: Tuner, gain: int, batch: int = 1, steps: int = 200) -> None:
    """Plain steps that commit ``gain`` tokens a request, so that this is the rate."""
    for _ in range(steps):
        begin(of, [10] * batch)
        taken = [outcome(chain(gain - 1), range(gain))] * batch
        observe(of, [None] * batch, taken)


def offered(bids: Sequence[Bid]) -> list[float]:
    """What candidates that may be taken are worth, best first."""
    return sorted(
        (b.worth * p for b in bids for p in sorted(b.pool.path[1:], reverse=True)[: b.limit]),
        reverse=True,
    )


def admitted(bids: Sequence[Bid], price: Price) -> list[float]:
    """What is worth so much that the policies take it at that price."""
    found: list[float] = []
    for b in bids:
        chances = dict(zip(b.pool.builder.tokens, b.pool.path, strict=True))
        found += [b.worth * chances[t] for t in b.tree(price, "auto").tokens[1:].tolist()]
    return sorted(found, reverse=True)
