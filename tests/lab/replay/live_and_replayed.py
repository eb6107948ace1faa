"""A model, its recordings, and the steps of live and replayed runs in comparable form."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from unittest.mock import patch

import torch

from draftwood import models
from draftwood.costs.curve import Curve, StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.request import Event, Request, Stepped
from draftwood.engine.stats import StepStats
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay import replayer as replaying
from draftwood.lab.replay.decoding import PromptRun
from draftwood.lab.replay.file import digest
from draftwood.lab.replay.hosts import PricedHost
from draftwood.lab.replay.recorder import Recorder, model_facts
from draftwood.lab.replay.recording import ModelFacts, RecordedPrompt, Recording, RecordingSettings
from draftwood.lab.replay.replayer import Replayer
from draftwood.lab.replay.substitute import replay_method
from draftwood.methods import method
from draftwood.models import Loaded
from draftwood.runner.attach import attach
from draftwood.sampling.sampler import SamplingParams

COSTS = StepCosts(Curve((1, 8, 64), (0.010, 0.011, 0.020)), fixed=0.0004, node=0.00001)


class StepRecord(NamedTuple):
    """The part of a step that must be equal."""

    tokens: list[int]
    parents: list[int]
    sources: tuple[str, ...]
    route: str
    path: tuple[int, ...]
    committed: int
    draft_calls: int


@dataclass(frozen=True, eq=False)
class Stage:
    """A loaded model, attached."""

    loaded: Loaded
    facts: ModelFacts
    host: PricedHost

    def asked(self, **changes: object) -> RecordingSettings:
        defaults: dict[str, object] = {
            "max_new_tokens": 24,
            "eos": tuple(sorted(self.loaded.eos)),
            "temperature": 0.0,
            "top_k": 0,
            "top_p": 1.0,
            "seed": 0,
            "width": 16,
        }
        return RecordingSettings(**{**defaults, **changes})  # type: ignore[arg-type]

    def record(self, prompts: Sequence[Prompt], **changes: object) -> Recording:
        recorder = Recorder(self.host.target, self.loaded.tokenizer, self.asked(**changes))
        found = [recorder.record(i, prompt) for i, prompt in enumerate(prompts)]
        return Recording(self.facts, recorder.settings, found)


def stage(name: str) -> Stage:
    """The embedded model or one in a directory, in float32."""
    torch.set_num_threads(1)
    loaded = models.load(name, dtype="float32", device="cpu")
    weights = digest(loaded.model)
    target = attach(loaded.model)
    facts = model_facts(loaded, weights, target.info)
    return Stage(loaded, facts, PricedHost(target, loaded.tokenizer, COSTS))


def step_record(step: StepStats) -> StepRecord:
    """A step in comparable form."""
    tree = step.tree
    return StepRecord(
        tree.tokens.tolist(),
        tree.parents.tolist(),
        tree.sources,
        tree.route,
        step.path,
        step.committed,
        step.draft_calls,
    )


class WatchedEngine(Engine):
    """An engine that remembers its steps."""

    steps: list[StepStats]

    def stream(self, requests: Sequence[Request]) -> Generator[Event, None, None]:
        for event in super().stream(requests):
            if isinstance(event, Stepped):
                self.steps.append(event.stats)
            yield event


def lived(
    at: Stage, spelt: str, prompt: RecordedPrompt, asked: RecordingSettings
) -> list[StepRecord]:
    """Every step of a live run, as the benchmark does it: a new engine for each prompt."""
    engine = Engine(at.host.target, method(spelt), max_batch=1, host=at.host)
    found = []
    for text in prompt.texts:
        sampling = SamplingParams(
            temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p, seed=prompt.seed
        )
        eos = frozenset(asked.eos)
        request = Request(text.prompt, asked.max_new_tokens, sampling, eos=eos)
        found += [step_record(e.stats) for e in engine.stream([request]) if isinstance(e, Stepped)]
    return found


def replayed(
    replayer: Replayer, spelt: str, prompt: RecordedPrompt
) -> tuple[list[StepRecord], PromptRun]:
    """Every step of a replay, and its figures."""
    one = replay_method(method(spelt), replayer.recording.model.info())
    with patch.object(replaying, "Engine", WatchedEngine):
        WatchedEngine.steps = []
        found = replayer.replay(one, prompt)
    return [step_record(step) for step in WatchedEngine.steps], found
