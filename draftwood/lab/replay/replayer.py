"""Replays prompts of a recording with any method of deterministic trees, alone or in batches.

If the recording lacks a row and the recorded model is at hand, the model is asked for it, and the
row is added to the recording.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from draftwood.costs.curve import StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.model_free_host import ModelFreeHost
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.decoding import BatchRun, PromptRun, decode, decode_together
from draftwood.lab.replay.drafter import ReplayDrafter
from draftwood.lab.replay.extend import RecordingDrafter, RecordingTarget
from draftwood.lab.replay.forward_log import ForwardLog
from draftwood.lab.replay.hosts import PricedHost
from draftwood.lab.replay.recording import MissingRowError, RecordedPrompt, Recording, Texts
from draftwood.lab.replay.substitute import ReplayMethod
from draftwood.lab.replay.target import ReplayTarget
from draftwood.protocols import Host
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


@dataclass(frozen=True, eq=False)
class Replayer:
    """Replays methods over a recording.

    What a method learns for all engines of a host (:class:`draftwood.protocols.Learnt`) is kept
    from prompt to prompt.

    Attributes:
        recording: gains the rows that the model is asked for.
        host: the recorded model's, used where the recording lacks rows.
        costs: step costs for methods that weigh nodes by cost; without them such methods are
            refused. ``host`` has its own.
        learnt: objects that learn from steps.
    """

    recording: Recording
    host: PricedHost | None = None
    costs: StepCosts | None = None
    learnt: dict[Hashable, Any] = field(default_factory=dict)

    def replay(self, method: ReplayMethod, prompt: RecordedPrompt) -> PromptRun:
        """Replay all turns of a prompt of the recording.

        Raises:
            MissingRowError: the recording lacks a row, and there is no model.
            DraftwoodError: the tokens differ from the recorded ones, which is a defect of a drafter
                or a policy.
        """
        engine, target, logs = self._engine(method, prompt.by_context(), 1)
        with _explained(method, f"prompt {prompt.id!r}"):
            run = decode(engine, self._requests(prompt), logs)
        _check(method, prompt, run.tokens)
        run.used_model = isinstance(target, RecordingTarget) and target.asked
        return run

    def replay_together(
        self, method: ReplayMethod, prompts: Sequence[RecordedPrompt], batch: int
    ) -> BatchRun:
        """Replay prompts of the recording in batches, as an engine with so many places does.

        Raises:
            MissingRowError: the recording lacks a row, and there is no model.
            DraftwoodError: two prompts have the same context; or the tokens differ from the
                recorded ones, which is a defect of a drafter or a policy.
        """
        texts = {k: text for prompt in prompts for k, text in prompt.by_context().items()}
        if len(texts) < sum(len(prompt.texts) for prompt in prompts):
            raise DraftwoodError(
                "two prompts have the same context, and their answers may differ: prompts that "
                "are decoded together need different ones"
            )
        engine, _, logs = self._engine(method, texts, batch)
        with _explained(method, f"batches of {batch} prompts"):
            run = decode_together(engine, [self._requests(prompt) for prompt in prompts], logs)
        for prompt, tokens in zip(prompts, run.tokens, strict=True):
            _check(method, prompt, tokens)
        return run

    def _engine(
        self, method: ReplayMethod, texts: Texts, places: int
    ) -> tuple[Engine, ReplayTarget, dict[str, ForwardLog]]:
        """An engine for some texts, its target, and the forward counts of its drafters."""
        given, recording = method.method.drafters, self.recording
        settings, info = recording.settings, recording.model.info()
        host: Host = ModelFreeHost(info, self.costs, learnt=self.learnt)
        target = ReplayTarget(info, texts, rejected=method.reads_rejected)
        drafters = {s: ReplayDrafter(name, texts, recording) for s, name in method.recorded.items()}
        if self.host is not None:
            host = self.host.having(self.learnt)
            target = RecordingTarget(
                self.host.target, texts, settings.width, rejected=method.reads_rejected
            )
            drafters = {
                source: RecordingDrafter(name, texts, recording, given[source], target)
                for source, name in method.recorded.items()
            }
        offline = replace(method.method, drafters={**given, **drafters})
        logs = {source: drafter.log for source, drafter in drafters.items()}
        return Engine(target, offline, max_batch=places, host=host), target, logs

    def _requests(self, prompt: RecordedPrompt) -> list[Request]:
        settings = self.recording.settings
        return [
            Request(
                text.prompt,
                settings.max_new_tokens,
                eos=frozenset(settings.eos),
                sampler=ArgmaxSampler(settings.temperature),
            )
            for text in prompt.texts
        ]


@contextmanager
def _explained(method: ReplayMethod, where: str) -> Iterator[None]:
    """Say of a missing row what it was needed for, and what to do."""
    try:
        yield
    except MissingRowError as error:
        raise MissingRowError(
            f"method {method.method.name!r} on {where}: {error}; give --model to ask the model for "
            "it, or have drafters learn from accepted nodes only with --harvest accepted"
        ) from None


def _check(method: ReplayMethod, prompt: RecordedPrompt, tokens: Sequence[tuple[int, ...]]) -> None:
    """Compare a prompt's answers with the recorded ones."""
    if list(tokens) != [text.tokens for text in prompt.texts]:
        raise DraftwoodError(
            f"method {method.method.name!r} generated other tokens than were recorded for prompt "
            f"{prompt.id!r}: a drafter or the policy has a defect"
        )
