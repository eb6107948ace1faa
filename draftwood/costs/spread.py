"""A cost that is paid once, and charged to the steps that gain from it."""


class Spread:
    """Seconds that have been spent and are still to be charged.

    Each step is charged one part in as many as steps gain from what was spent, of what is left. So
    all is charged in the end, most of it over so many steps.
    """

    def __init__(self) -> None:
        self._left, self._steps = 0.0, 1.0

    def add(self, seconds: float, steps: float) -> None:
        """Spend so many seconds, above 0, from which so many steps gain, 1 or more."""
        total = self._left + seconds
        self._steps = (self._left * self._steps + seconds * steps) / total
        self._left = total

    def take(self) -> float:
        """The seconds that a step is charged."""
        share = self._left / self._steps
        self._left -= share
        return share
