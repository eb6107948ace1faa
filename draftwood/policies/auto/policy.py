"""``auto``: one tree of all sources' candidates, sized for the most tokens per second.

Every source's candidates go into one pool, where a token offered twice below one parent is one node
(:mod:`draftwood.policies.auto.pool`). Each candidate has a calibrated probability, and a path's
probability is the product along it. That is a candidate's value, with a discount if it is copied
(:mod:`draftwood.policies.auto.copies`). A child is never worth more than its parent, so the best
tree of n nodes is the n candidates of the largest values. The policy bids with these; the price in
answer says how many of them pay in this step.

Draft models and heads are asked level by level, while the tokens that another level is expected to
add are more than the tokens that could be generated in the same time; of several, the one that
gains most is next (:mod:`draftwood.policies.auto.drafting`). Above temperature 0 a model's
children are the Gumbel top-k of its q with the random numbers that the target draws with
(:mod:`draftwood.drafters._rollout.coupling`), so that no tree changes a token, whatever its size
depends on. Or some children are sampled with numbers of their own
(:mod:`draftwood.policies.auto.sampled_pool`). Plain decoding and a chain are points of this policy.

GOOSE's tiers and bypass, TALON's gate and budget, DynaTree's thresholds and OPT-Tree's stop are
rules of thumb for what is computed here; the papers' methods stay beside this one as they are.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from draftwood.costs.recall import recall_or_measure
from draftwood.errors import DraftwoodError
from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.calibration_file import load
from draftwood.policies.auto.drafting import DraftLevels
from draftwood.policies.auto.features import (
    COPIED,
    NEURAL,
    SOURCES,
    TABLE,
    UNKNOWN,
    Source,
    copied_codes,
    features_of,
    neural_source,
)
from draftwood.policies.auto.forecast import DEFAULT_FORECAST, DraftForecast, Forecast
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.report import Report
from draftwood.policies.auto.sampled_pool import Plan, SampledPool
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import (
    Asked,
    Bid,
    Built,
    Candidates,
    Continuation,
    Continue,
    Descent,
    DrafterSpec,
    Expand,
    Grower,
    Growth,
    Host,
    Level,
    Policy,
    Price,
    Query,
    Tuner,
    setting,
)
from draftwood.protocols.recipe import DRAFT
from draftwood.tree import SAMPLED, Draw, TreeBuilder

_DRAWS = {
    "coupled": Draw.COUPLED,
    "ranked": Draw.ONE_HOT,
    "drawn": Draw.WITHOUT_REPLACEMENT,
    "either": Draw.WITHOUT_REPLACEMENT,
}

_SHIPPED = {"all": ("head", "table"), "table": ("table",), "calibration": ()}
"""Kinds of shipped parts beside the calibration."""

_REACH = 0.15
"""Probability that one of some nodes is reached below which a table is not asked: a look-up takes
time as well."""

_FORCED = "forced"
"""The drafter that says what a grammar forces."""

_POOL = 4
"""Most candidates of a step, over the most that are drafted."""


@dataclass(frozen=True)
class Auto(Policy):
    """Drafts the likeliest candidates of all sources, as many as raise the tokens per second.

    Raises:
        DraftwoodError: a setting outside its range, one source named twice, or two sources with a
            model, or a chain, for a layout that samples.
    """

    budget: int = setting(64, "most nodes to draft, root excluded", least=0)
    max_depth: int = setting(64, "deepest node", least=1)
    width: int = setting(8, "most successors of a node to ask the table for", least=1)
    level: int = setting(8, "most nodes of a draft level, and most children of each", least=1)
    chain: str = setting("context", "name of the source that copies; empty: none", source="chains")
    table: str = setting(
        "adjacency", "name of the source that ranks; empty: none", source="successors"
    )
    neural: tuple[str, ...] = setting(
        (), "sources with a model, such as draft+eagle3; each is asked where it pays"
    )
    layout: Literal["coupled", "ranked", "drawn", "either"] = setting(
        "coupled",
        "a model's drafts above temperature 0: Gumbel top-k with the target's noise, the likeliest "
        "tokens, samples, or the better of the last two; with the last two a seed does not decide "
        "the tokens",
    )

    shape: Literal["tree", "chain"] = setting(
        "tree", "draft a tree, or the one path of it with the most expected tokens"
    )

    also: tuple[str, ...] = setting(
        (), "further sources: names of drafters that say what they know"
    )
    calibration: str = setting(
        "", "file of 'draftwood calibrate' to start from; empty: the one shipped for the model"
    )
    shipped: Literal["all", "table", "calibration", "off"] = setting(
        "all",
        "use what is shipped for the model where nothing else is given: head, table and "
        "calibration; the last two; the calibration; nothing",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        own = {self.chain, self.table, *self.neural}
        if again := [name for name in self.also if name in own]:
            raise DraftwoodError(f"auto has the source {again[0]!r} already: leave it out of also")
        if len(set(self.sources)) < len(self.sources):
            raise DraftwoodError(f"sources are {', '.join(self.sources)}; name different ones")
        if self.shape == "chain" and self.neural and _DRAWS[self.layout] in SAMPLED:
            raise DraftwoodError(
                f"layout={self.layout} samples siblings, and a chain has none: use layout=coupled "
                "or layout=ranked, or leave shape out"
            )
        if len(self.neural) > 1 and _DRAWS[self.layout] in SAMPLED:
            raise DraftwoodError(
                f"layout={self.layout} samples from one model, and neural names "
                f"{' and '.join(self.neural)}: name one, or use layout=coupled or layout=ranked"
            )

    @property
    def sources(self) -> tuple[str, ...]:
        """The copying source, the table, further ones, and those with a model."""
        return tuple(filter(None, (self.chain, self.table, *self.also, *self.neural)))

    @property
    def asks(self) -> Mapping[str, Asked]:
        """Copied chains, and successors of the table and the models.

        The further sources declare what they answer.
        """
        return {**super().asks, **dict.fromkeys(self.neural, "successors")}

    @property
    def grammar_sources(self) -> tuple[str, ...]:
        """What the grammar forces, unless that is a further source anyway."""
        return () if _FORCED in self.sources else (_FORCED,)

    @cached_property
    def _unknown(self) -> tuple[Source, ...]:
        """The sources in the order of a candidate's codes, where no drafter is known."""
        return self._with_neural(Source(name, UNKNOWN) for name in self.also)

    def _with_neural(self, also: Iterable[Source]) -> tuple[Source, ...]:
        return (*SOURCES, *also, *map(neural_source, self.neural[1:]))

    @property
    def draws(self) -> frozenset[Draw]:
        """Nodes are chosen deterministically, unless a model's children are sampled."""
        return frozenset({Draw.ONE_HOT, _DRAWS[self.layout] if self.neural else Draw.ONE_HOT})

    @property
    def branching(self) -> bool:
        """Whether it drafts trees."""
        return self.shape == "tree"

    def adopts(self, shipped: Mapping[str, str]) -> Mapping[str, str]:
        """See :meth:`draftwood.protocols.Policy.adopts`; a setting that is given stays."""
        if self.shipped == "off":
            return {}
        found: dict[str, str] = {}
        kinds = _SHIPPED[self.shipped]
        if "head" in kinds and "head" in shipped and not self.neural:
            found |= {"head": shipped["head"], "neural": DRAFT}
        if "table" in kinds and "table" in shipped and self.table:
            found[f"{self.table}.table"] = shipped["table"]
        if "calibration" in shipped and not self.calibration:
            found["calibration"] = shipped["calibration"]
        return {**found, "shipped": "off"}

    @property
    def weighs_costs(self) -> bool:
        """True: as many nodes are drafted as pay."""
        return True

    def tuner(self, host: Host, drafters: Mapping[str, Built]) -> Tuner:
        """A tuner that starts from the calibration and from the target's measured costs."""
        sources = self.described({name: drafters[name].spec for name in self.also})
        path = Path(self.calibration)
        if self.calibration:
            known = host.share(("calibration", self.calibration), lambda: load(path))
            calibration = known.calibration(sources)
        else:
            calibration = Calibration(sources=sources)
        models = {name: drafters[name].drafter for name in self.neural}
        neural = {
            name: DraftForecast(at_once=each.at_once, deepest=each.deepest)
            for name, each in models.items()
        }
        forced = [drafters[name].spec for name in self.grammar_sources if name in drafters]
        return AutoTuner(
            calibration,
            recall_or_measure(host, drafters, self),
            neural,
            forced=Source(_FORCED, forced[0].evidence) if forced else None,
        )

    def described(self, drafters: Mapping[str, DrafterSpec]) -> tuple[Source, ...]:
        """The sources in the order of a candidate's codes, by what the further drafters declare."""
        return self._with_neural(Source(name, drafters[name].evidence) for name in self.also)

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``auto``, and ``plain`` where nothing pays."""
        budget = min(self.budget, growth.budget)
        deepest = min(self.max_depth, growth.room)
        if budget < 1 or deepest < 1:
            return TreeBuilder(growth.anchor).build("plain")
        forecast: Forecast = growth.forecast or DEFAULT_FORECAST
        floor = forecast.floor
        if floor > 1.0:
            return TreeBuilder(growth.anchor).build("plain")
        sources = forecast.sources or self._unknown
        if growth.constrained and not forecast.sources:
            sources += tuple(Source(name, UNKNOWN) for name in self.grammar_sources)
        given = (growth.anchor, forecast.acceptance, floor, _POOL * budget, sources)
        draw = _DRAWS[self.layout] if growth.temperature > 0.0 else Draw.ONE_HOT
        sampled = SampledPool(*given) if self.neural and draw in SAMPLED else None
        pool = Pool(*given, chain=not self.branching) if sampled is None else sampled
        known = features_of(sources)
        copying = [(COPIED, self.chain), *((i, sources[i].name) for i in known.copying)]
        ranking = [(TABLE, self.table), *((i, sources[i].name) for i in known.ranking)]
        ranking = [(position, name) for position, name in ranking if name]
        for position, name in copying:
            if not name:
                continue
            copies: tuple[Continuation, ...] = yield Continue(name)
            for place, offer in enumerate(copies):
                code = copied_codes(sources[position], offer, preferred=place == 0)
                pool.copy(offer.tokens[:deepest], code, name, position)
        yield from self._rank(pool, ranking, range(len(pool)), deepest)
        levels = DraftLevels(pool, self.neural, forecast, deepest, self.level, budget)
        positions = dict(zip(self.neural, known.neural, strict=False))
        while offers := levels.offers():
            served = levels.served(offers)
            level: Level = served or (yield levels.bids(offers))
            nodes = levels.begin(offers, level, served=served is not None)
            if not nodes:
                continue
            name = level.source
            if sampled is None:
                answer: Candidates = yield self._ask(name, pool, nodes, draw, growth)
                found = nodes, answer.tokens, answer.logq
                fresh = pool.offer(positions[name], name, *found, draw=draw)
            else:
                answer = yield self._ask(name, pool, nodes, Draw.ONE_HOT, growth)
                fresh = yield from self._sample(
                    name, sampled, nodes, answer, growth, forecast.price
                )
            yield from self._rank(pool, ranking, fresh, deepest)
        discount = pool.discount(forecast.tokens, forecast.price, budget)
        report = Report(pool, budget, forecast.token_weight, levels.forwards(), discount)
        price: Price = yield Bid(report.values, pool.settled, levels.widths, report)
        return pool.tree(report.chosen(price), "auto")

    def _rank(
        self, pool: Pool, ranking: Sequence[tuple[int, str]], nodes: Sequence[int], deepest: int
    ) -> Generator[Query, Any, None]:
        """Add successors of the nodes, of these successors, and so on.

        ``ranking``: position and drafter's name of the sources that are asked.
        """
        at_once = len(ranking) == 1
        while True:
            nodes = pool.reached(nodes, deepest)
            if sum(pool.path[node] for node in nodes) < _REACH:
                return
            if at_once:
                at_once = yield from self._descend(pool, *ranking[0], nodes, deepest)
                if at_once:
                    return
            fresh: list[int] = []
            for position, name in ranking:
                answer: Candidates = yield Expand(name, pool.builder, nodes, self.width)
                found = nodes, answer.tokens, answer.logq
                fresh += pool.offer(position, name, *found, front=pool.ranks)
            nodes = fresh

    def _descend(
        self, pool: Pool, position: int, name: str, nodes: Sequence[int], deepest: int
    ) -> Generator[Query, Any, bool]:
        """The same by queries for all levels at once; False if the drafter does not answer these.

        What the source says of nodes that are there changes their probabilities, and so how far it
        is asked below them.
        """
        known = pool.description(position, name, nodes, self.width)
        if known.nodes:
            said: list[int] | None = yield known
            if said is None:
                return False
            pool.describe(position, known.nodes, said)
        found: Descent | None = yield pool.descent(position, nodes, known, _REACH, deepest)
        if found is not None:
            pool.descend(position, name, found)
        return found is not None

    def _ask(
        self, name: str, pool: Pool, nodes: Sequence[int], draw: Draw, growth: Growth
    ) -> Expand:
        """The query for a level of a model's children."""
        if draw is Draw.ONE_HOT:
            return Expand(name, pool.builder, nodes, self.level)
        return Expand(
            name,
            pool.builder,
            nodes,
            self.level,
            draw,
            temperature=growth.temperature,
            noise=growth.noise,
        )

    def _sample(
        self,
        name: str,
        pool: SampledPool,
        nodes: Sequence[int],
        answer: Candidates,
        growth: Growth,
        price: float,
    ) -> Generator[Expand, Any, list[int]]:
        """Add children of nodes that the model was asked about: its likeliest tokens, or the
        likeliest one and some sampled from the rest of q, where these are expected to add more."""
        tokens, logq = answer.tokens, answer.logq
        fresh = pool.offer(NEURAL, name, nodes, tokens, logq, front=1)
        budget = min(self.budget, growth.budget)
        plans: list[Plan] = []
        ranked: list[int] = []
        for row, node in enumerate(nodes):
            others: list[float] = []
            if self.layout == "either":
                others = pool.promised(NEURAL, node, tokens[row], logq[row])
            plan = pool.plan(node, others, price, budget)
            if plan is None:
                ranked.append(row)
            else:
                plans.append(plan)
        if ranked:
            asked = [nodes[row] for row in ranked]
            fresh += pool.offer(NEURAL, name, asked, tokens[ranked], logq[ranked])
        if plans:
            answered: Candidates = yield Expand(
                name,
                pool.builder,
                [plan.node for plan in plans],
                max(len(plan.codes) for plan in plans),
                draw=Draw.WITHOUT_REPLACEMENT,
                exclude=[plan.exclude for plan in plans],
                temperature=growth.temperature,
                noise=growth.noise,
            )
            handles = [] if answered.q_rows is None else answered.q_rows.tolist()
            for plan, found, handle in zip(plans, answered.tokens.tolist(), handles, strict=True):
                fresh += pool.add_sampled(plan, name, found, handle)
        return fresh


PART = Auto
