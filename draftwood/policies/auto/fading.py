"""A ratio that follows what happens: of two sums, whose old parts fade."""


class Ratio:
    """See the module.

    Args:
        start: the ratio before anything happened.
        weight: what that counts for, in the unit of what it is divided by.
        half_life: observations after which a part has lost half its weight.
    """

    def __init__(self, start: float, weight: float, half_life: float) -> None:
        self._above, self._below = start * weight, weight
        self._kept = 2.0 ** (-1.0 / half_life)

    @property
    def value(self) -> float:
        """As it is by now."""
        return self._above / self._below

    def add(self, above: float, below: float, observations: int = 1) -> None:
        """So much more of both, in so many observations at once."""
        kept = self._kept**observations
        self._above = self._above * kept + above
        self._below = self._below * kept + below
