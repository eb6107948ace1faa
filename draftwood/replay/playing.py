"""One prompt through the engine, turn by turn: its steps in figures, and the time they took.

The target takes recorded (or made-up) tokens, so the engine decodes as if greedily, whatever the
temperature was. Knows nothing of where rows come from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from draftwood.engine import Engine
from draftwood.replay.levels import LevelLog
from draftwood.requests import Finished, Request, Stepped, checked
from draftwood.sampling import Sampler, SamplingParams
from draftwood.stats import StepStats, Tally


class Taking(Sampler):
    """Takes what the target's argmax says; policies are told the temperature all the same."""

    def __init__(self, temperature: float) -> None:
        super().__init__(SamplingParams(), 0)
        self.temperature = temperature

    @property
    def do_sample(self) -> bool:
        """Never."""
        return False

    @property
    def plain(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True)
class Turn:
    """What is to be continued, and how far."""

    context: tuple[int, ...]
    max_new_tokens: int
    eos: frozenset[int] = frozenset()
    temperature: float = 0.0

    def request(self) -> Request:
        """As the engine takes it."""
        return Request(
            self.context,
            self.max_new_tokens,
            eos=self.eos,
            sampler=Taking(self.temperature),
        )


@dataclass(frozen=True)
class StepFigures:
    """A step, as far as its cost goes.

    Attributes:
        nodes: drafted.
        committed: tokens, after any cut.
        levels: nodes scored in each forward of each drafter with a model, by source.
    """

    nodes: int
    committed: int
    levels: Mapping[str, tuple[int, ...]]


@dataclass(eq=False)
class Played:
    """All turns of a prompt.

    Attributes:
        tokens: of each turn's answer.
        tally: over all turns.
        steps: of all turns, in order.
        seconds: of decoding, prefills included.
    """

    tokens: list[tuple[int, ...]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    steps: list[StepFigures] = field(default_factory=list)
    seconds: float = 0.0


Watch = Callable[[int, StepStats], None]
"""Told every step with the number of its turn."""


def play(
    engine: Engine,
    turns: Sequence[Turn],
    logs: Mapping[str, LevelLog],
    watch: Watch | None = None,
) -> Played:
    """Decode the turns one after another; drafters live through all of them.

    Args:
        engine: of one method, freshly made.
        turns: in order.
        logs: of the drafters with a model, by source.
        watch: told every step.
    """
    played = Played()
    begun = perf_counter()
    for number, turn in enumerate(turns):
        for event in checked(engine.stream([turn.request()])):
            if isinstance(event, Stepped):
                stats = event.stats
                levels = {source: log.taken() for source, log in logs.items()}
                played.steps.append(StepFigures(stats.tree.drafted, stats.committed, levels))
                if watch is not None:
                    watch(number, stats)
            elif isinstance(event, Finished):
                played.tokens.append(event.completion.tokens)
                played.tally.merge(event.completion.tally)
    played.seconds = perf_counter() - begun
    return played
