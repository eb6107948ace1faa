"""The one policy that the others are special cases of: all sources in one tree, sized by its worth.

Every source's candidates go into one pool, a token offered twice below one parent being one node
(:mod:`draftwood.pool`). Each has a calibrated chance, a path's chance is the product along it, and
a child is never likelier than its parent, so the best tree of n nodes is simply the n likeliest
candidates. How many are worth their cost in this step the price says, which the policy bids for.
A draft model is asked level by level, while the tokens that another level is expected to add are
more than those that could be generated in the time it takes. No node and a chain are points of
the same policy.

GOOSE's tiers and bypass, TALON's gate and budget, DynaTree's thresholds and OPT-Tree's stop are
rules of thumb for what is computed here; the paper's methods stay as they are, beside this one.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.bids import Bid
from draftwood.errors import DraftwoodError
from draftwood.evidence import OTHER
from draftwood.pool import Pool, Voice
from draftwood.protocols import Candidates, Continuation, Continue, Expand, Grower, Growth, Outcome
from draftwood.tree import ROOT, Draw, TreeBuilder

_REACH = 0.15
"""Chance that one of some nodes is reached below which their successors are not looked up: that
takes time as well."""

_POOL = 4
"""Candidates that are kept, over the most that are drafted."""


@dataclass(frozen=True)
class Auto:
    """The likeliest candidates of all sources, as many as pay.

    Raises:
        DraftwoodError: a setting outside its range, or one source named twice.
    """

    budget: int = field(default=64, metadata={"help": "most nodes to draft, root excluded"})
    max_depth: int = field(default=32, metadata={"help": "deepest node"})
    width: int = field(default=8, metadata={"help": "successors asked of the table for a node"})
    level: int = field(default=8, metadata={"help": "nodes of a draft level, and children of each"})
    chain: str = field(default="context", metadata={"help": "name of the source that copies"})
    table: str = field(default="adjacency", metadata={"help": "name of the source that ranks"})
    neural: str = field(default="", metadata={"help": "name of a source with a model, if any"})

    branching: ClassVar = True

    def __post_init__(self) -> None:
        for name, least in (("budget", 0), ("max_depth", 1), ("width", 1), ("level", 1)):
            if getattr(self, name) < least:
                raise DraftwoodError(f"{name} is {getattr(self, name)}; give at least {least}")
        if len(set(self.sources)) < len(self.sources):
            raise DraftwoodError(f"sources are {', '.join(self.sources)}; name different ones")

    @property
    def sources(self) -> tuple[str, ...]:
        """The copying source, the table, and the one with a model if there is any."""
        return (self.chain, self.table, *((self.neural,) if self.neural else ()))

    @property
    def draws(self) -> frozenset[Draw]:
        """Every node is chosen deterministically."""
        return frozenset({Draw.ONE_HOT})

    def start(self) -> None:
        """What is learnt belongs to the engine's tuner."""

    def learn(self, state: None, outcome: Outcome) -> None:
        """What is learnt belongs to the engine's tuner."""

    def grow(self, growth: Growth, state: None) -> Grower:
        """Routes: ``auto``, and ``plain`` where nothing was worth its cost."""
        budget = min(self.budget, growth.budget)
        deepest = min(self.max_depth, growth.room)
        if budget < 1 or deepest < 1:
            return TreeBuilder(growth.anchor).build("plain")
        outlook = growth.outlook or _UNTOLD
        if outlook.floor > 1.0:
            return TreeBuilder(growth.anchor).build("plain")
        pool = Pool(growth.anchor, outlook, outlook.floor, most=_POOL * budget)
        offers: tuple[Continuation, ...] = yield Continue(self.chain)
        for place, offer in enumerate(offers):
            pool.copy(offer.tokens[:deepest], offer.match_length, self.chain, place == 0)
        yield from self._rank(pool, range(len(pool)), deepest)
        levels: list[int] = []
        asked: set[int] = set()
        while self.neural and not pool.full:
            nodes = self._promising(pool, asked, deepest)
            gain = sum(pool.path[node] * (1.0 - pool.covered(node)) for node in nodes)
            if gain * outlook.coverage <= outlook.level(len(nodes)):
                break
            levels.append(len(nodes))
            asked.update(nodes)
            answer: Candidates = yield Expand(self.neural, pool.builder, nodes, self.level)
            fresh = pool.offer(Voice.NEURAL, self.neural, nodes, answer.tokens, answer.logq)
            yield from self._rank(pool, fresh, deepest)
        price = yield Bid(pool, budget, tuple(levels))
        return pool.admitted(price, budget, "auto")

    def _rank(self, pool: Pool, nodes: Sequence[int], deepest: int) -> Generator[Expand, Any, None]:
        """Successors of the nodes, of these successors, and so on."""
        while True:
            nodes = [node for node in nodes if pool.builder.depths[node] < deepest]
            if sum(pool.path[node] for node in nodes) < _REACH:
                return
            answer: Candidates = yield Expand(self.table, pool.builder, nodes, self.width)
            nodes = pool.offer(Voice.TABLE, self.table, nodes, answer.tokens, answer.logq)

    def _promising(self, pool: Pool, asked: set[int], deepest: int) -> list[int]:
        """The likeliest nodes that the model may be asked about next, parents asked before."""
        parents, depths = pool.builder.parents, pool.builder.depths
        open_nodes = [
            node
            for node in range(len(pool))
            if depths[node] < deepest
            and node not in asked
            and (node == ROOT or parents[node] in asked)
        ]
        best = sorted(open_nodes, key=lambda node: -pool.path[node])[: self.level]
        return sorted(best)


class _Untold:
    """An outlook for whoever has learnt nothing: a copied token is likelier than not."""

    floor = 0.02
    coverage = 0.7

    def chances(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """By whether it was copied."""
        return np.where(codes[:, 0] > OTHER, 0.6, 0.3)

    def level(self, width: int) -> float:
        """A quarter of a token."""
        return 0.25


_UNTOLD = _Untold()
PART = Auto
