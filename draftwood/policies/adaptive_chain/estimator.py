"""The acceptance of a chain's tokens, by position and by the drafter's confidence.

Token k of a chain, counted from 0, is accepted, if those before it are, with the probability

    sigmoid(w * x + b[k])

where x is the log odds of the drafter's probability of the token. Slope w and intercepts b are
fitted to what the target accepts: every 100 steps a Newton step of a logistic regression, damped by
the number of observations, and with a small ridge. An observation is a token that was verified and
whose predecessors were accepted. Rule and constants are vLLM's (``acceptance_estimator.py`` of its
Model Runner V2). Knows nothing of trees.
"""

import math
from collections.abc import Sequence

INTERVAL = 100
"""Steps between two fits."""

_FIRST = 1.5
"""Log odds of acceptance before the first fit, whatever the position and the confidence."""

_DAMPING = 50.0
"""Observations with which a parameter moves by half of a Newton step."""

_RIDGE = 1e-3
_LARGEST = 40.0
"""Largest log odds of a drafter's probability."""


def log_odds(logq: float) -> float:
    """The log odds of a probability, within bounds, from its natural logarithm."""
    if logq >= 0.0:
        return _LARGEST
    rest = -math.expm1(logq)  # 1 - q
    return min(_LARGEST, max(-_LARGEST, logq - math.log(rest)))


def sigmoid(value: float) -> float:
    """The probability of log odds."""
    return 1.0 / (1.0 + math.exp(-value)) if value > -700.0 else 0.0


class AcceptanceEstimator:
    """Predicts whether the target accepts a token of a chain, and learns from what it accepts.

    Args:
        positions: longest chain.
        warmup: fits before :attr:`trained`.
    """

    def __init__(self, positions: int, warmup: int) -> None:
        self.slope = 0.0
        self.intercepts = [_FIRST] * positions
        self._positions = positions
        self._left = warmup
        self._steps = 0
        self._begin()

    def _begin(self) -> None:
        """Forget the observations: each fit has its own, so that it follows the text."""
        self._curvature, self._score = 0.0, 0.0  # of the slope
        # Of each intercept; its coupling to the slope; observations.
        self._own = [0.0] * self._positions
        self._scores = [0.0] * self._positions
        self._coupling = [0.0] * self._positions
        self._count = [0] * self._positions

    @property
    def trained(self) -> bool:
        """Whether chains may be cut. Before that all tokens are verified, so as to learn of all."""
        return self._left <= 0

    def probability(self, position: int, odds: float) -> float:
        """That the target accepts a token if it accepts those before it."""
        return sigmoid(self.slope * odds + self.intercepts[position])

    def observe(self, odds: Sequence[float], verified: int, accepted: int) -> None:
        """Learn from a chain.

        Args:
            odds: log odds of the drafter's probability of each token.
            verified: tokens, the first ones.
            accepted: of these.
        """
        for k in range(min(verified, accepted + 1)):
            x, p = odds[k], self.probability(k, odds[k])
            weight, error = p * (1.0 - p), float(k < accepted) - p
            self._curvature += weight * x * x
            self._score += error * x
            self._own[k] += weight
            self._scores[k] += error
            self._coupling[k] += weight * x
            self._count[k] += 1

    def step(self) -> None:
        """Count a step; after so many the parameters are fitted anew."""
        self._steps += 1
        if self._steps % INTERVAL == 0:
            self._fit()
            self._begin()
            self._left -= 1

    def _fit(self) -> None:
        """One damped Newton step. The slope's equation is what is left once each intercept has been
        eliminated from the normal equations."""
        own = [value + _RIDGE for value in self._own]
        rows = list(zip(self._coupling, self._scores, own, strict=True))
        curvature = self._curvature + _RIDGE - sum(c * c / d for c, _, d in rows)
        slope = (self._score - sum(c * s / d for c, s, d in rows)) / curvature
        slope *= _damped(sum(self._count))
        # A negative slope would say that a surer draft is accepted less often.
        if self.slope + slope < 0.0:
            slope = 0.0
        self.slope += slope
        self.intercepts = [
            old + (s - c * slope) / d * _damped(n)
            for old, (c, s, d), n in zip(self.intercepts, rows, self._count, strict=True)
        ]


def _damped(observations: int) -> float:
    return observations / (observations + _DAMPING)
