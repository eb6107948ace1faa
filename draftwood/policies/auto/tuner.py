"""The tuner of ``auto``: sizes trees by expected tokens and by the time that the tokens cost.

Of the candidates that all requests of a step bid, the n most valuable are verified, with n such
that

    E(n) - rate * T(n)

is largest. E(n) is one token for each request plus the values of the n best candidates. T(n) is the
seconds of a step (:mod:`draftwood.costs`) whose forward is over n drafted nodes. So a request with
good candidates may have a large tree beside others with none. The rate is the moving average of the
tokens a second that the engine generates, or that of plain decoding if it is higher. This maximises
tokens per second over many steps; maximising E(n) / T(n) step by step would spend too little on
steps that promise much and too much on others. If n = 0 is best, the step is plain decoding. Its
candidates are labelled all the same, so that the tuner notices when drafting pays again.

The rate is relative to plain decoding at the same load, by the same cost curve. So neither a
shrinking batch nor a machine that slows down as a whole moves it. Draft forwards are decided before
that, level by level (:mod:`draftwood.policies.auto.levels`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, zip_longest
from types import MappingProxyType

from draftwood.costs.decayed_ratio import DecayedRatio
from draftwood.costs.live import LiveCosts
from draftwood.costs.spread import Spread
from draftwood.policies.auto.calibration import BANDS, Calibration, Counts, band
from draftwood.policies.auto.features import Source
from draftwood.policies.auto.forecast import DEFAULT_FORECAST, DraftForecast, Forecast
from draftwood.policies.auto.levels import best_level
from draftwood.policies.auto.rates import token_weights
from draftwood.policies.auto.report import Report
from draftwood.protocols import (
    MOST_READ,
    NOTHING_PAYS,
    Bid,
    LevelBid,
    Prediction,
    Price,
    RequestLoad,
    StepReport,
    Tuner,
)

_HALF_LIFE = 24.0
"""Half-life of the rates, in observations."""

_LOWEST, _HIGHEST = 0.004, 0.4
"""Bounds of the floor: low enough to notice what may pay, high enough to be quick."""

_SELDOM = 4
"""If searching for candidates does not pay, one step in so many searches."""

_SMOOTHING = 0.2
"""Weight of the newest step in the moving averages of the price and of the drafted nodes."""

_GAIN, _FIRST_PRICE = 1.3, 0.05
"""Averages before the first step."""

_DRAFTER_GAIN = (0.45, 0.35, 0.35)
"""What each neural drafter adds in each temperature band, before it has been asked."""

_GAIN_WEIGHT, _GAIN_HALF_LIFE = 32.0, 200.0
"""Weight of the first of these, in expected tokens, and half-life of the average, in observations.
What came of a single step is mostly chance."""

_WEIGHT = 8.0
"""Weight of these averages, in observations."""

_FORGOTTEN = 0.05
"""Weight of the first average of a drafter that was not asked, a step: it is asked again some day,
even if it did not pay."""

_ASKED, _ASKED_WEIGHT = 0.2, 64.0
"""Share of the steps in which a drafter that has read a request's text is asked again, at first,
and its weight, in steps of a request. What it reads at first is paid back by these steps alone."""

_PIECES = (32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048)
"""Prompt tokens that may be cached between two steps, or within one."""

_DEAREST = 1.05
"""Cost of a token in such a piece, over that of a token in the cheapest one, at most."""

_DEAREST_WITHIN = 1.25
"""The same of a piece within a step, and over that of a token between two steps."""

_NO_SEARCH = replace(DEFAULT_FORECAST, floor=NOTHING_PAYS.least)
"""The forecast of steps that do not search for candidates: most do not, if searching adds less than
the tokens that could be generated meanwhile."""

_PAYS = 0.01
"""Least net gain of drafting over plain decoding, in expected tokens a request."""


class AutoTuner(Tuner):
    """The tuner of ``auto``: acceptance, step costs and the price of a node.

    Args:
        calibration: predicts acceptance, and learns.
        costs: of a step; learn as well.
        neural: what is known of the neural drafters, by source; gains and costs are learnt.
        forced: a further source of requests with a grammar; it is added with the first of them.
    """

    def __init__(
        self,
        calibration: Calibration,
        costs: LiveCosts,
        neural: Mapping[str, DraftForecast] = MappingProxyType({}),
        *,
        forced: Source | None = None,
    ) -> None:
        self.calibration = calibration
        self._common = calibration.sources
        self._forced = forced
        self.costs = costs
        self._neural = neural
        self._drafter_gains = {
            name: {source: DecayedRatio(first, _GAIN_WEIGHT, _GAIN_HALF_LIFE) for source in neural}
            for name, first in zip(BANDS, _DRAFTER_GAIN, strict=True)
        }
        self._asked = {
            source: DecayedRatio(_ASKED, _ASKED_WEIGHT, _GAIN_HALF_LIFE) for source in neural
        }
        self._gain = DecayedRatio(_GAIN, _WEIGHT, _HALF_LIFE)
        self._net_gain = DecayedRatio(_GAIN - 1.0, _WEIGHT, _HALF_LIFE)
        self._counts: list[Counts] = []
        self._bands: list[str] = []
        self._loads: Sequence[RequestLoad] = ()
        self._searches = True
        self.batch, self._context, self._plain = 1, 0, 1.0
        self._now = costs.now(1)
        self._price, self._recent_price = NOTHING_PAYS, _FIRST_PRICE
        self._recent_nodes = 0.0  # drafted nodes of a request
        self._steps = 0
        self._newest = 0.0  # seconds of the newest step, as expected
        self._unpaid = Spread()
        self._read = 0  # tokens of prompts that the step's forward caches

    def begin(self, loads: Sequence[RequestLoad]) -> list[Forecast]:
        """See :class:`draftwood.protocols.Tuner`."""
        self.batch, self._context = len(loads), sum(load.cached for load in loads)
        self._now = self.costs.now(self.batch)
        self._plain = self._seconds(0)
        self._steps += 1
        if self._forced is not None and any(load.constrained for load in loads):
            self.calibration.extend(self._forced)
            self._forced = None
        net_gain = self.batch * self._net_gain.value
        lost = self.rate * self.costs.search(self.batch)
        self._searches = (
            self.costs.drafts(self.batch)
            and not self.costs.plain_due(self.batch)
            and (self._steps % _SELDOM == 0 or net_gain >= lost)
        )
        self._counts = [self.calibration.at(load.temperature) for load in loads]
        self._bands = [band(load.temperature) for load in loads]
        self._loads = loads
        if not self._searches:
            return [_NO_SEARCH] * self.batch
        weights = token_weights(loads)
        tokens = self._tokens(weights)
        return [
            Forecast(
                acceptance=counts.acceptance,
                token_weight=weight,
                floor=min(_HIGHEST, max(_LOWEST, self._recent_price / weight)),
                price=self._recent_price / weight,
                drafts={
                    source: DraftForecast(
                        gain.value,
                        self.rate * self._catch_up(source, load),
                        self._neural[source].at_once,
                        self._neural[source].deepest,
                    )
                    for source, gain in self._drafter_gains[name].items()
                },
                sources=self.calibration.sources if load.constrained else self._common,
                tokens=own_tokens,
            )
            for load, counts, name, weight, own_tokens in zip(
                loads, self._counts, self._bands, weights, tokens, strict=True
            )
        ]

    def _tokens(self, weights: Sequence[float]) -> list[Callable[[int], float]]:
        """See :attr:`.forecast.Forecast.tokens`; by request.

        The other requests draft as many nodes as they did recently. The time of searching and of
        draft levels does not count.
        """
        now, context, batch, rate = self._now, self._context, self.batch, self.rate
        drafted = self._recent_nodes
        usual = rate * self._seconds(round(batch * drafted))
        with_prompts = now.step(batch + self._read + round(batch * drafted), context, batch)
        others = batch + self._read + round((batch - 1) * drafted)
        # All requests ask for like numbers of nodes.
        further = cache(
            lambda nodes: rate * (now.step(others + nodes, context, batch) - with_prompts)
        )
        mean_pace = sum(load.pace for load in self._loads) / batch

        def of(load: RequestLoad, weight: float) -> Callable[[int], float]:
            share = load.pace / mean_pace * usual / batch
            return lambda nodes: max(1.0, share + further(nodes) / weight)

        return [of(load, weight) for load, weight in zip(self._loads, weights, strict=True)]

    def _catch_up(self, source: str, load: RequestLoad) -> float:
        """Seconds to read a drafter's backlog, spread over the steps in which it will be asked.

        They are a share of as many steps as the backlog has grown for, or of those that the request
        has left, if they are fewer.
        """
        backlog = load.backlogs.get(source, 0)
        steps = self._asked[source].value * _steps(load, backlog)
        return self._reading(source, backlog) / max(1.0, steps)

    def _reading(self, source: str, backlog: int) -> float:
        """Seconds that a draft model takes to read ``backlog`` tokens along with a level."""
        curve = self._now.drafters.get(source)
        return curve.seconds(1 + backlog) - curve.seconds(1) if curve else 0.0

    @property
    def rate(self) -> float:
        """Recent tokens per second, at the load of this step; at least those of plain decoding.

        A rate below that would have nodes drafted that cost more than the tokens that plain steps
        generate meanwhile.
        """
        return max(1.0, self._gain.value) * self.batch / self._plain

    def _level(self, source: str, nodes: int, requests: int) -> float:
        """Seconds of a drafter's forward over some nodes, those of some of the requests."""
        context = self._context * requests // self.batch
        curve = self._now.drafters.get(source)
        return curve.seconds(nodes, context, requests) if curve else 0.0

    def levels(self, bids: Mapping[str, Sequence[LevelBid]]) -> tuple[str, list[int]]:
        """See :class:`draftwood.protocols.Tuner`."""
        rate = self.rate
        return best_level(bids, lambda *forward: rate * self._level(*forward))

    def price(self, bids: Sequence[Bid]) -> Price:
        """See :class:`draftwood.protocols.Tuner`."""
        rate = self.rate
        # The cost of a node outside of the forward is the node's own.
        least = rate * self._now.node
        # Settled nodes are drafted and paid for.
        settled = sum(bid.settled for bid in bids)
        fixed = (value for bid in bids for value in bid.values[: bid.settled])
        gained = sum(max(0.0, value - least) for value in fixed)
        values = [v for bid in bids for v in bid.values[bid.settled :] if v > least]
        values.sort(reverse=True)
        count, net = self._best([value - least for value in values], settled, gained)
        pays = settled > 0 or net > _PAYS * self.batch
        count = count if pays else 0
        # The value at which another node would pay; the first one pays for leaving plain decoding
        # as well.
        nodes = max(1, settled + count)
        marginal = rate * (self._forward(nodes + 1) - self._forward(nodes)) + least
        self._recent_price += _SMOOTHING * (min(1.0, marginal) - self._recent_price)
        self._price = Price(values[count - 1]) if count else NOTHING_PAYS
        return self._price

    def _best(self, gains: Sequence[float], settled: int, gained: float) -> tuple[int, float]:
        """How many further nodes to draft, and the gain net of the forward's cost.

        Args:
            gains: of the candidates, descending.
            settled: nodes that are drafted anyway.
            gained: by these.
        """
        rate, plain, everything = self.rate, self._forward(0), gained + sum(gains)
        count, best = 0, gained - rate * (self._forward(settled) - plain)
        for place, gain in enumerate(gains, 1):
            gained += gain
            cost = rate * (self._forward(settled + place) - plain)
            if everything - cost <= best:  # a larger forward is never cheaper
                break
            # A price does not tell candidates of one value apart.
            last = place == len(gains) or gains[place] < gain
            if last and gained - cost > best:
                count, best = place, gained - cost
        return count, best

    def _forward(self, nodes: int) -> float:
        """Seconds of the target's forward over the roots and so many drafted nodes.

        Pieces of prompts go with them.
        """
        tokens = self.batch + self._read + nodes
        return self._now.target.seconds(tokens, self._context, self.batch)

    @property
    def recent_price(self) -> float:
        """See :class:`draftwood.protocols.Tuner`; a moving average, 1 at most."""
        return self._recent_price

    def reads_within(self, tokens: int) -> None:
        """See :class:`draftwood.protocols.Tuner`."""
        self._read = tokens

    def observe_prompt(self, tokens: int, seconds: float) -> None:
        """See :class:`draftwood.protocols.Tuner`."""
        self.costs.observe_prompt(tokens, seconds)

    def prompt_piece(self) -> int:
        """See :class:`draftwood.protocols.Tuner`.

        Of the pieces whose tokens cost little more than those of the cheapest one, the smallest
        that takes no less than the newest step, so that both sides get about half of the time. If
        all of them take less, it is the largest.
        """
        curve = self.costs.prompt or self._now.target
        return self._cheap_piece({piece: curve.seconds(piece) for piece in _PIECES}, _DEAREST)

    def prompt_piece_within(self) -> int:
        """See :class:`draftwood.protocols.Tuner`; the rule of :meth:`prompt_piece`.

        What a piece adds to a step may be more than its forward between two steps would take: it
        holds the others up for less time.
        """
        tokens = self.batch + round(self.batch * self._recent_nodes)
        seconds = {p: self.costs.within(self.batch, tokens, p) for p in _PIECES}
        piece, between = self._cheap_piece(seconds, _DEAREST_WITHIN), self.prompt_piece()
        curve = self.costs.prompt or self._now.target
        most = _DEAREST_WITHIN * curve.seconds(between) / between
        if seconds[piece] <= most * piece:
            return piece
        self.costs.unused_within(self.batch)
        return 0

    def _cheap_piece(self, seconds: Mapping[int, float], dearest: float) -> int:
        """The piece to cache, given the seconds that each takes."""
        dearest *= min(taken / piece for piece, taken in seconds.items())
        cheap = [piece for piece, taken in seconds.items() if taken <= dearest * piece]
        least = max(self._plain, self._newest)
        return next((piece for piece in cheap if seconds[piece] >= least), cheap[-1])

    def observe(self, report: StepReport) -> list[Prediction | None]:
        """See :class:`draftwood.protocols.Tuner`."""
        bids, outcomes = report.bids, report.outcomes
        predictions: list[Prediction | None] = []
        more = 0.0  # expected tokens, without the discount on copies: that is for sizes alone
        for bid, outcome, counts, name, load in zip(
            bids, outcomes, self._counts, self._bands, self._loads, strict=True
        ):
            if bid is None:
                predictions.append(None)
                continue
            own: Report = bid.report
            codes, labelled = own.labelled(outcome.committed)
            if codes:
                counts.observe(codes, labelled.taken)
            for source, (gained, headroom) in own.gained(outcome.committed).items():
                # A model that still reads the prompt has proposed nothing.
                if self.batch == 1 or load.backlogs.get(source, 0) <= MOST_READ:
                    self._drafter_gains[name][source].add(gained, headroom)
            predicted = own.expected(self._price)
            more += own.token_weight * (predicted - 1.0)
            predictions.append(Prediction(self._steps, predicted, labelled))
        taught = (c for c, bid in zip(self._counts, bids, strict=True) if bid is not None)
        for counts in dict.fromkeys(taught):
            counts.fade()
        nodes = sum(outcome.tree.drafted for outcome in outcomes)
        searched = [bid for bid in bids if bid is not None]
        asked = dict.fromkeys(source for bid in searched for source in bid.levels)
        forwards = {source: self._draft_seconds(source, searched) for source in asked}
        drafting = sum(forwards.values())
        if searched:
            self._recent_nodes += _SMOOTHING * (nodes / self.batch - self._recent_nodes)
            self._forget(bids)
            self._note_asked(bids)
            took = self._forward(nodes) - self._forward(0) + self._now.node * nodes + drafting
            net = (more - self.rate * took) / self.batch
            self._net_gain.add(max(0.0, net), 1.0, self.batch)
        reads = {source: self._reads(source, bids) for source in asked}
        reading = sum(seconds for each in reads.values() for seconds, _ in each)
        expected = self._newest = self._seconds(nodes) + drafting + reading
        if searched:
            expected += self.costs.search(self.batch)
        committed = sum(len(outcome.committed) for outcome in outcomes)
        self._gain.add(committed, self.batch * expected / self._plain)
        if not report.recorded:
            self._teach(report, nodes, committed, forwards, reads)
        return predictions

    def _forget(self, bids: Sequence[Bid | None]) -> None:
        """Move the gains of drafters that nobody asked, band by band, towards their first ones."""
        asked: dict[str, set[str]] = {}
        for name, bid in zip(self._bands, bids, strict=True):
            if bid is not None:
                asked.setdefault(name, set()).update(bid.levels)
        for name, sources in asked.items():
            for source in self._neural.keys() - sources:
                self._drafter_gains[name][source].forget(_FORGOTTEN)

    def _note_asked(self, bids: Sequence[Bid | None]) -> None:
        """Learn how often the drafters are asked that have read a request's text."""
        for source, share in self._asked.items():
            again = [
                source in bid.levels
                for bid, load in zip(bids, self._loads, strict=True)
                if bid is not None and load.has_read(source)
            ]
            if again:
                share.add(sum(again), len(again), len(again))
            else:  # so that it is tried again some day
                share.forget(_FORGOTTEN)

    def _teach(
        self,
        report: StepReport,
        nodes: int,
        committed: int,
        forwards: Mapping[str, float],
        reads: Mapping[str, Sequence[tuple[float, float]]],
    ) -> None:
        """Have the costs learn from a step.

        Args:
            report: of the step.
            nodes: drafted, of all trees.
            committed: tokens.
            forwards: expected seconds of the draft levels of each drafter that was asked.
            reads: what it has read, see :meth:`_reads`.
        """
        times, seconds = report.times, report.times.total
        searched = any(bid is not None for bid in report.bids)
        tokens, outside = self.batch + nodes, times.after_target
        read = report.prompt_tokens
        seconds -= self.costs.within(self.batch, tokens, read)
        self.costs.observe(tokens, self._context, self.batch, times.target, outside, read)
        if searched:
            search = times.draft if report.search is None or not forwards else report.search
            drafting = times.draft - search
            levels = {s: own + sum(read for read, _ in reads[s]) for s, own in forwards.items()}
            expected, own = sum(levels.values()), sum(forwards.values())
            # A step that mostly reads prompts says little of levels.
            known = drafting > 0.0 and expected <= 2.0 * own
            levels = levels if known else dict.fromkeys(levels, 0.0)
            self.costs.searched(self.batch, search, drafting, levels)
            scale = min(1.0, drafting / expected) if expected > 0.0 else 0.0
            seconds += self._owed(chain.from_iterable(reads.values()), scale)
        self.costs.compare(self.batch, searched, committed, seconds / self._plain)

    def _seconds(self, nodes: int) -> float:
        """Seconds of a step without drafting, by the drafted nodes of all trees."""
        return self._now.step(self.batch + nodes, self._context, self.batch)

    def _reads(self, source: str, bids: Sequence[Bid | None]) -> list[tuple[float, float]]:
        """What a drafter has read in this step.

        Of each request that it was asked about, the expected seconds to read the backlog, and the
        steps that gain from it.
        """
        found = []
        for bid, load in zip(bids, self._loads, strict=True):
            if bid and source in bid.levels:
                backlog = load.backlogs.get(source, 0)
                read = backlog if self.batch == 1 else min(backlog, MOST_READ)
                found.append((self._reading(source, read), _steps(load, backlog)))
        return found

    def _owed(self, reads: Iterable[tuple[float, float]], scale: float) -> float:
        """What a step owes for prompts read before, less what later ones will owe for its reading.

        Args:
            reads: of the step, see :meth:`_reads`.
            scale: of their expected seconds, to those that they took at most.
        """
        owed = self._unpaid.take()
        for seconds, steps in reads:
            later = scale * seconds * (1.0 - 1.0 / steps)
            if later > 0.0:
                self._unpaid.add(later, steps)
                owed -= later
        return owed

    def _draft_seconds(self, source: str, bids: Sequence[Bid]) -> float:
        """Seconds of a drafter's forwards in this step."""
        levels = [bid.levels.get(source, ()) for bid in bids]
        forwards = [[w for w in widths if w] for widths in zip_longest(*levels, fillvalue=0)]
        return sum(self._level(source, sum(widths), len(widths)) for widths in forwards)


def _steps(load: RequestLoad, backlog: int) -> float:
    """The steps of a request that gain from reading a backlog now."""
    return max(1.0, min(load.left, backlog) / max(1.0, load.pace))
