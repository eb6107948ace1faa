"""The tuner of ``adaptive-chain``: how many tokens of all chains of a batch are verified."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from draftwood.costs.live import LiveCosts
from draftwood.policies.adaptive_chain.estimator import AcceptanceEstimator
from draftwood.protocols import (
    FREE,
    NOTHING_PAYS,
    Bid,
    Labelled,
    Prediction,
    Price,
    RequestLoad,
    StepReport,
    Tuner,
)


@dataclass(frozen=True, eq=False)
class Chain:
    """A drafted chain: the report of its bid.

    Attributes:
        odds: log odds of the drafter's probability of each token.
        probabilities: predicted, that the target accepts each if it accepts those before it.
        survival: that it accepts each.
    """

    odds: Sequence[float]
    probabilities: Sequence[float]
    survival: Sequence[float]

    @staticmethod
    def of(odds: Sequence[float], acceptance: AcceptanceEstimator) -> "Chain":
        """The chain of tokens with these log odds, as predicted now."""
        found = [acceptance.probability(k, x) for k, x in enumerate(odds)]
        return Chain(odds, found, list(accumulate(found, lambda path, p: path * p)))

    def kept(self, price: Price) -> int:
        """How many tokens are verified at a price, the first ones."""
        return sum(value >= price.least for value in self.survival)


def most_per_second(
    values: Sequence[float], requests: int, seconds: Callable[[int], float]
) -> tuple[int, float]:
    """How many draft tokens to verify, and the tokens per second that are expected of it.

    Args:
        values: expected tokens of each draft token, descending.
        requests: each commits one token more.
        seconds: of a step that verifies so many draft tokens.
    """
    count, best = 0, requests / seconds(0)
    for place, tokens in enumerate(accumulate(values, initial=float(requests))):
        # A price does not tell tokens of one value apart.
        last = place in (0, len(values)) or values[place] < values[place - 1]
        if last and (rate := tokens / seconds(place)) > best:
            count, best = place, rate
    return count, best


class AdaptiveTuner(Tuner):
    """Verifies the draft tokens of a batch that make the most expected tokens per second.

    Args:
        acceptance: predicts acceptance, and learns.
        costs: of a step; learn as well.
        at_once: one draft forward drafts the whole chain.
    """

    def __init__(
        self, acceptance: AcceptanceEstimator, costs: LiveCosts, *, at_once: bool = False
    ) -> None:
        self.acceptance = acceptance
        self.costs = costs
        self._at_once = at_once
        self._batch, self._context = 1, 0
        self._now = costs.now(1)
        self._steps = 0

    def begin(self, loads: Sequence[RequestLoad]) -> list[AcceptanceEstimator]:
        """The estimator for every request."""
        self._batch, self._context = len(loads), sum(load.cached for load in loads)
        self._now = self.costs.now(self._batch)
        self._steps += 1
        return [self.acceptance] * len(loads)

    def price(self, bids: Sequence[Bid]) -> Price:
        """See :class:`draftwood.protocols.Tuner`."""
        if not self.acceptance.trained:
            return FREE
        values = sorted((value for bid in bids for value in bid.values), reverse=True)
        drafting = self._draft_seconds(bids)
        count, _ = most_per_second(values, self._batch, lambda n: drafting + self._seconds(n))
        return Price(values[count - 1]) if count else NOTHING_PAYS

    def _seconds(self, drafted: int) -> float:
        """Seconds of a step over so many draft tokens, without drafting them."""
        return self._now.step(self._batch + drafted, self._context, self._batch)

    def _draft_seconds(self, bids: Sequence[Bid]) -> float:
        """Seconds of the step's draft forwards. They are spent, whatever is verified."""
        lengths = [1 if self._at_once else sum(map(len, bid.levels.values())) for bid in bids]
        context, levels = self._context // self._batch, self._now.drafters.values()
        return sum(
            max((c.seconds(n, context * n, n) for c in levels), default=0.0)
            for n in (sum(k < length for length in lengths) for k in range(max(lengths)))
        )

    def observe(self, report: StepReport) -> list[Prediction | None]:
        """See :class:`draftwood.protocols.Tuner`."""
        found: list[Prediction | None] = []
        for bid, outcome in zip(report.bids, report.outcomes, strict=True):
            if bid is None:
                found.append(None)
                continue
            chain: Chain = bid.report
            verified, accepted = outcome.tree.drafted, len(outcome.path)
            seen = min(verified, accepted + 1)
            labelled = Labelled(
                outcome.tree.sources[1 : 1 + seen],
                chain.probabilities[:seen],
                [k < accepted for k in range(seen)],
            )
            tokens = 1.0 + sum(chain.survival[:verified])
            found.append(Prediction(self._steps, tokens, labelled))
            self.acceptance.observe(chain.odds, verified, accepted)
        if any(bid is not None for bid in report.bids):
            self.acceptance.step()
        times, nodes = report.times, sum(outcome.tree.drafted for outcome in report.outcomes)
        if report.typical:
            size = (self._batch + nodes, self._context, self._batch)
            self.costs.observe(*size, times.target, times.after_target)
        return found
