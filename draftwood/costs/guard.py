"""Whether drafting is faster than plain decoding, by what whole steps took and what they gave.

Costs and chances of acceptance are models, and both may be wrong in ways that no correction sees.
Here the outcome is compared: tokens per second of the steps that searched for drafts, and of those
that did not. Where drafting falls behind, steps are plain, but for short trials, which become
seldom while they fail.

Time is counted in plain steps, as they are expected to take at each step's load, so that neither a
longer context nor a smaller batch is taken for a slower method. Pure.
"""

from math import ceil

from draftwood.costs.decayed_ratio import DecayedRatio

_HALF_LIFE = 48.0
"""Half-life of both speeds, in steps."""
_MARGIN = 0.06
"""By so much drafting has to be behind in a batch of one. As chance averages out in a larger batch,
this and the numbers of steps that are compared are divided by the batch's root."""
_LEAST_DRAFTED, _LEAST_PLAIN = 24, 3
"""Steps of each kind before they are compared."""
_TRIAL = 10
"""Steps of a trial that count."""
_FIRST = 2
"""Steps of a trial before these, in which drafters catch up."""
_PAUSES = (32, 256)
"""Plain steps before a trial, at first and at last. In between they double."""
_LONGEST = 4.0
"""What a step takes at most, in plain steps of this size of tree: a pause of the machine is none
of the method's."""


class Guard:
    """Compares both kinds of steps in batches of about one size.

    Args:
        batch: sequences.
    """

    def __init__(self, batch: int) -> None:
        root = batch**0.5
        self._margin = _MARGIN / root
        self._least = {True: ceil(_LEAST_DRAFTED / root), False: ceil(_LEAST_PLAIN / root)}
        self._length = _FIRST + ceil(_TRIAL / root)
        self._speeds = {kind: DecayedRatio(1.0, 1.0, _HALF_LIFE) for kind in (True, False)}
        self._seen = {True: 0, False: 0}
        self._pause = _PAUSES[0]
        self._left = 0  # plain steps before the next trial
        self._trial: list[tuple[float, float]] | None = None

    @property
    def drafts(self) -> bool:
        """Whether the next step is to search for drafts."""
        return not self._left

    def observe(self, searched: bool, tokens: float, seconds: float) -> None:
        """Count a step.

        Args:
            searched: whether it searched for drafts.
            tokens: that it committed, a request.
            seconds: that it took, over those of a plain step at its load.
        """
        if not seconds > 0.0:
            return
        seconds = min(seconds, _LONGEST * max(1.0, tokens))
        self._seen[searched] += 1
        if self._trial is None or not searched:
            self._speeds[searched].add(tokens, seconds)
        if self._left:
            self._left -= not searched
            if not self._left:
                self._trial = []
        elif self._trial is not None:
            if searched:
                self._trial.append((tokens, seconds))
            if len(self._trial) >= self._length:
                self._judge(self._trial[_FIRST:])
        elif self._behind():
            self._rest()

    def _behind(self) -> bool:
        """Whether drafting has been slower for long enough."""
        enough = all(self._seen[kind] >= least for kind, least in self._least.items())
        return (
            enough and self._speeds[True].value < (1.0 - self._margin) * self._speeds[False].value
        )

    def _rest(self) -> None:
        """Begin a pause from drafting; the next one is twice as long."""
        self._left, self._pause = self._pause, min(2 * self._pause, _PAUSES[1])

    def _judge(self, steps: list[tuple[float, float]]) -> None:
        """End a trial: drafting goes on if it was faster, and is what it was in these steps."""
        tokens, seconds = (sum(column) for column in zip(*steps, strict=True))
        self._trial = None
        if tokens / seconds < self._speeds[False].value:
            self._rest()
            return
        self._pause = _PAUSES[0]
        self._speeds[True] = DecayedRatio(tokens / seconds, seconds, _HALF_LIFE)
        self._seen[True] = len(steps)
