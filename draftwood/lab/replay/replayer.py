"""Plays prompts of a recording with any method of deterministic trees.

Without a model where the recording knows enough; else, if a live model is there, with it, once:
what it says is kept. Knows nothing of files and terminals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from draftwood.costs.curve import StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.request import Finished, Request, Stepped, checked
from draftwood.engine.stats import StepStats, Tally
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import LevelLog
from draftwood.lab.replay.live import LiveTarget
from draftwood.lab.replay.pricing import ModelFreeHost, PricedHost
from draftwood.lab.replay.recording import MissingRowError, RecordedPrompt, Recording
from draftwood.lab.replay.substitute import Part, Recorded, Taught, part_of
from draftwood.lab.replay.target import ReplayTarget
from draftwood.methods.recipe import Method
from draftwood.protocols import Host, Target
from draftwood.sampling.sampler import Sampler, SamplingParams


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


@dataclass(frozen=True, eq=False)
class Live:
    """The recorded model, attached, and where draft models are loaded beside it."""

    target: Target
    host: Host


@dataclass(frozen=True, eq=False)
class Replayed:
    """A prompt with a method.

    Attributes:
        prompt: which.
        played: what it came to.
        live: whether the model had to be asked.
    """

    prompt: RecordedPrompt
    played: Played
    live: bool


class Replayer:
    """See the module.

    Args:
        recording: learns what the live model says.
        live: asked where the recording does not know enough.
        costs: what methods that weigh nodes by their cost are told; without them such methods are
            refused.
    """

    def __init__(
        self, recording: Recording, live: Live | None = None, costs: StepCosts | None = None
    ) -> None:
        self.recording = recording
        self._info = recording.model.info()
        self._live = live
        self._costs = costs

    def part(self, method: Method) -> Part:
        """A method, checked: see :func:`draftwood.lab.replay.substitute.part_of`."""
        return part_of(method, self._info)

    def replay(self, part: Part, prompt: RecordedPrompt, watch: Watch | None = None) -> Replayed:
        """All turns of a prompt.

        Args:
            part: of the method.
            prompt: of the recording.
            watch: told every step; of a replay that has to be begun again live, twice.

        Raises:
            MissingRowError: the recording does not know enough, and there is no live model.
            DraftwoodError: the tokens are not the recorded ones, which is a defect of a drafter or
                a policy.
        """
        try:
            played, live = self._replay(part, prompt, watch), False
        except MissingRowError as error:
            if self._live is None:
                raise MissingRowError(
                    f"method {part.method.name!r} on prompt {prompt.id!r}: {error}; give --model "
                    "to ask the model once, or have drafters learn from accepted nodes only "
                    "with --harvest accepted"
                ) from None
            played, live = self._teach(part, prompt, self._live, watch), True
        if played.tokens != [text.tokens for text in prompt.texts]:
            raise DraftwoodError(
                f"method {part.method.name!r} came to other tokens than were recorded for prompt "
                f"{prompt.id!r}: it changes what the target says"
            )
        return Replayed(prompt, played, live)

    def _replay(self, part: Part, prompt: RecordedPrompt, watch: Watch | None) -> Played:
        recorded = self._recorded(part, prompt)
        target = self._target(part, prompt)
        method = replace(part.method, drafters={**part.method.drafters, **recorded})
        engine = Engine(target, method, max_batch=1, host=self._priced(ModelFreeHost(self._info)))
        logs = {source: spec.log for source, spec in recorded.items()}
        return play(engine, self._turns(prompt), logs, watch)

    def _teach(self, part: Part, prompt: RecordedPrompt, live: Live, watch: Watch | None) -> Played:
        given, recorded = part.method.drafters, self._recorded(part, prompt)
        taught = {source: Taught(given[source], spec) for source, spec in recorded.items()}
        width = self.recording.asked.width
        target = LiveTarget(live.target, self._target(part, prompt), width)
        method = replace(part.method, drafters={**given, **taught})
        engine = Engine(target, method, max_batch=1, host=self._priced(live.host))
        logs = {source: spec.log for source, spec in recorded.items()}
        return play(engine, self._turns(prompt), logs, watch)

    def _priced(self, host: Host) -> Host:
        return host if self._costs is None else PricedHost(host, self._costs)

    def _recorded(self, part: Part, prompt: RecordedPrompt) -> dict[str, Recorded]:
        return {
            source: Recorded(name, prompt, self.recording) for source, name in part.modelled.items()
        }

    def _target(self, part: Part, prompt: RecordedPrompt) -> ReplayTarget:
        return ReplayTarget(self._info, prompt.by_context(), rejected=part.reads_rejected)

    def _turns(self, prompt: RecordedPrompt) -> list[Turn]:
        asked = self.recording.asked
        return [
            Turn(text.prompt, asked.max_new_tokens, frozenset(asked.eos), asked.temperature)
            for text in prompt.texts
        ]
