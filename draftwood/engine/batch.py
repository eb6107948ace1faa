"""The requests of one step: where they are cached, what failed, and the time each phase took."""

from collections.abc import Sequence
from time import perf_counter

from draftwood import recordings
from draftwood.engine.isolation import Failures
from draftwood.engine.joining import PromptPiece
from draftwood.engine.sequence import RunningRequest
from draftwood.protocols import StepTimes


class Stopwatch:
    """Wall-clock seconds by phase; runs from its construction on."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, phase: str) -> None:
        """Count the time since the last lap for a phase of :class:`StepTimes`."""
        now = perf_counter()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now

    @property
    def since(self) -> float:
        """Seconds since the last lap."""
        return perf_counter() - self._last

    @property
    def times(self) -> StepTimes:
        """All laps so far."""
        return StepTimes(**self._seconds)


class Batch:
    """The running requests of one step.

    Args:
        live: these requests.
        forwards: draft forwards that were run before the step.
        pieces: of prompts, which the forward caches as well.

    Attributes:
        slots: of the requests.
        failures: exceptions that a request's own work raised.
        unread: the exception that the forward raised with the pieces; it was repeated without them.
        watch: times the step.
        search: seconds of the draft phase before the first bids for a draft level; None: no bids.
    """

    def __init__(
        self,
        live: Sequence[RunningRequest],
        forwards: int,
        pieces: Sequence[PromptPiece] = (),
    ) -> None:
        self.live = live
        self.forwards = forwards
        self.pieces = pieces
        self.unread: Exception | None = None
        self.slots = [s.slot for s in live]
        self.failures = Failures()
        self.watch = Stopwatch()
        self.search: float | None = None
        self._recordings = recordings.count()

    @property
    def read(self) -> Sequence[PromptPiece]:
        """The pieces that are cached with the step."""
        return () if self.unread else self.pieces

    @property
    def prompt_tokens(self) -> int:
        """Tokens of these pieces."""
        return sum(piece.tokens for piece in self.read)

    @property
    def recorded(self) -> bool:
        """Whether a forward was recorded since the step began, ran in larger shapes or twice."""
        return self.unread is not None or recordings.count() > self._recordings

    def sound(self, sequence: RunningRequest) -> bool:
        """Whether the request has not failed in this step."""
        return sequence.number not in self.failures
