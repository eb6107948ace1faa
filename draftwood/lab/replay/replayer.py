"""Replays prompts of a recording with any method of deterministic trees.

If the recording lacks a row and the recorded model is at hand, the prompt is decoded again with the
model, which adds the missing rows to the recording.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from draftwood.costs.curve import StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.request import Finished, Request, Stepped, checked
from draftwood.engine.stats import StepStats, Tally
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import ForwardLog
from draftwood.lab.replay.extend import RecordingTarget
from draftwood.lab.replay.hosts import ModelFreeHost, PricedHost
from draftwood.lab.replay.recording import MissingRowError, RecordedPrompt, Recording
from draftwood.lab.replay.substitute import RecordingSpec, ReplayMethod, ReplaySpec, replay_method
from draftwood.lab.replay.target import ReplayTarget
from draftwood.methods.recipe import Method
from draftwood.protocols import DrafterSpec, Host, Target
from draftwood.sampling.sampler import Sampler, SamplingParams


class ArgmaxSampler(Sampler):
    """Takes the target's argmax, and shows policies the recording's temperature."""

    def __init__(self, temperature: float) -> None:
        super().__init__(SamplingParams(), 0)
        self.temperature = temperature

    @property
    def do_sample(self) -> bool:
        """False: the recorded token is the argmax."""
        return False

    @property
    def plain(self) -> bool:
        """True: there are no logits to process."""
        return True


@dataclass(frozen=True)
class StepWork:
    """Size of a step, from which its cost is estimated.

    Attributes:
        nodes: drafted nodes.
        committed: committed tokens, after any cut.
        levels: by source, the number of nodes scored in each forward of a drafter with a model.
    """

    nodes: int
    committed: int
    levels: Mapping[str, tuple[int, ...]]


@dataclass(eq=False)
class PromptRun:
    """All turns of a prompt, decoded.

    Attributes:
        tokens: token ids of each turn's answer.
        tally: statistics over all turns.
        steps: steps of all turns, in order.
        seconds: wall time of decoding and prefills.
    """

    tokens: list[tuple[int, ...]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    steps: list[StepWork] = field(default_factory=list)
    seconds: float = 0.0


Watch = Callable[[int, StepStats], None]
"""Called after every step with the turn's number and the step's statistics."""


def decode(
    engine: Engine,
    turns: Sequence[Request],
    logs: Mapping[str, ForwardLog],
    watch: Watch | None = None,
) -> PromptRun:
    """Decode turns one after another; drafters keep their state between turns.

    Args:
        engine: a new engine.
        turns: in order.
        logs: forward counts of the drafters with a model, by source.
        watch: called after every step.
    """
    run = PromptRun()
    start = perf_counter()
    for number, turn in enumerate(turns):
        for event in checked(engine.stream([turn])):
            if isinstance(event, Stepped):
                stats = event.stats
                levels = {source: log.take() for source, log in logs.items()}
                run.steps.append(StepWork(stats.tree.drafted, stats.committed, levels))
                if watch is not None:
                    watch(number, stats)
            elif isinstance(event, Finished):
                run.tokens.append(event.completion.tokens)
                run.tally.merge(event.completion.tally)
    run.seconds = perf_counter() - start
    return run


@dataclass(frozen=True, eq=False)
class RecordedModel:
    """The recorded target, attached, and the host that loads draft models for it."""

    target: Target
    host: Host


@dataclass(frozen=True, eq=False)
class ReplayedPrompt:
    """A replayed prompt.

    Attributes:
        prompt: the recorded prompt.
        run: tokens, steps and statistics.
        used_model: whether the model was needed.
    """

    prompt: RecordedPrompt
    run: PromptRun
    used_model: bool


class Replayer:
    """Replays methods over a recording.

    Args:
        recording: gains the rows that the model is asked for.
        model: used where the recording lacks rows.
        costs: step costs for methods that weigh nodes by cost; without them such methods are
            refused.
    """

    def __init__(
        self,
        recording: Recording,
        model: RecordedModel | None = None,
        costs: StepCosts | None = None,
    ) -> None:
        self.recording = recording
        self._info = recording.model.info()
        self._model = model
        self._costs = costs

    def method(self, method: Method) -> ReplayMethod:
        """Check a method: see :func:`draftwood.lab.replay.substitute.replay_method`."""
        return replay_method(method, self._info)

    def replay(
        self, method: ReplayMethod, prompt: RecordedPrompt, watch: Watch | None = None
    ) -> ReplayedPrompt:
        """Replay all turns of a prompt.

        Args:
            method: see :meth:`method`.
            prompt: one of the recording.
            watch: called after every step; twice if the prompt is repeated with the model.

        Raises:
            MissingRowError: the recording lacks a row, and there is no model.
            DraftwoodError: the tokens differ from the recorded ones, which is a defect of a drafter
                or a policy.
        """
        used_model = False
        try:
            run = self._decode(method, prompt, None, watch)
        except MissingRowError as error:
            if self._model is None:
                raise MissingRowError(
                    f"method {method.method.name!r} on prompt {prompt.id!r}: {error}; give --model "
                    "to ask the model once, or have drafters learn from accepted nodes only "
                    "with --harvest accepted"
                ) from None
            run, used_model = self._decode(method, prompt, self._model, watch), True
        if run.tokens != [text.tokens for text in prompt.texts]:
            raise DraftwoodError(
                f"method {method.method.name!r} generated other tokens than were recorded for "
                f"prompt {prompt.id!r}: a drafter or the policy has a defect"
            )
        return ReplayedPrompt(prompt, run, used_model)

    def _decode(
        self,
        method: ReplayMethod,
        prompt: RecordedPrompt,
        model: RecordedModel | None,
        watch: Watch | None,
    ) -> PromptRun:
        given, recording = method.method.drafters, self.recording
        recorded = {
            source: ReplaySpec(name, prompt, recording) for source, name in method.recorded.items()
        }
        drafters: dict[str, DrafterSpec] = {**given, **recorded}
        replayed = ReplayTarget(self._info, prompt.by_context(), rejected=method.reads_rejected)
        target: Target = replayed
        host: Host = ModelFreeHost(self._info)
        if model is not None:
            drafters |= {s: RecordingSpec(given[s], spec) for s, spec in recorded.items()}
            target = RecordingTarget(model.target, replayed, recording.settings.width)
            host = model.host
        if self._costs is not None:
            host = PricedHost(host, self._costs)
        engine = Engine(target, replace(method.method, drafters=drafters), max_batch=1, host=host)
        logs = {source: spec.log for source, spec in recorded.items()}
        settings = recording.settings
        turns = [
            Request(
                text.prompt,
                settings.max_new_tokens,
                eos=frozenset(settings.eos),
                sampler=ArgmaxSampler(settings.temperature),
            )
            for text in prompt.texts
        ]
        return decode(engine, turns, logs, watch)
