"""A moving average of a ratio."""


class DecayedRatio:
    """The ratio of two sums whose old parts decay exponentially.

    Args:
        start: the ratio before the first observation.
        weight: weight of ``start``, in the unit of the denominator.
        half_life: observations after which a part has lost half its weight.
    """

    def __init__(self, start: float, weight: float, half_life: float) -> None:
        self._start = start
        self._above, self._below = start * weight, weight
        self._decay = 2.0 ** (-1.0 / half_life)

    @property
    def value(self) -> float:
        """The ratio now."""
        return self._above / self._below

    def forget(self, weight: float) -> None:
        """Move towards ``start``, by an observation of it with this weight."""
        self.add(self._start * weight, weight)

    def add(self, above: float, below: float, observations: int = 1) -> None:
        """Add to both sums, for so many observations at once."""
        decay = self._decay**observations
        self._above = self._above * decay + above
        self._below = self._below * decay + below
