"""A live model, its recordings, and every step of live and replayed runs in comparable form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from draftwood import models
from draftwood.costs.curve import Curve, StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Request, Stepped
from draftwood.engine.stats import StepStats
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.file import digest
from draftwood.lab.replay.pricing import PricedHost
from draftwood.lab.replay.recorder import Recorder
from draftwood.lab.replay.recording import Asked, ModelFacts, RecordedPrompt, Recording
from draftwood.lab.replay.replayer import Live, Replayed, Replayer
from draftwood.methods import method
from draftwood.models import Loaded
from draftwood.runner.attach import attach
from draftwood.sampling.sampler import SamplingParams

COSTS = StepCosts(Curve((1, 8, 64), (0.010, 0.011, 0.020)), fixed=0.0004, node=0.00001)


class Shown(NamedTuple):
    """All of a step that has to be equal."""

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
    live: Live

    def asked(self, **changes: object) -> Asked:
        usual: dict[str, object] = {
            "max_new_tokens": 24,
            "eos": tuple(sorted(self.loaded.eos)),
            "temperature": 0.0,
            "top_k": 0,
            "top_p": 1.0,
            "seed": 0,
            "width": 16,
        }
        return Asked(**{**usual, **changes})  # type: ignore[arg-type]

    def record(self, prompts: Sequence[Prompt], **changes: object) -> Recording:
        recorder = Recorder(self.live.target, self.loaded.tokenizer, self.asked(**changes))
        found = [recorder.record(i, prompt) for i, prompt in enumerate(prompts)]
        return Recording(self.facts, recorder.asked, found)


def stage(name: str) -> Stage:
    """The embedded model or one in a directory, in float32."""
    torch.set_num_threads(1)
    loaded = models.load(name, dtype="float32", device="cpu")
    weights = digest(loaded.model)
    target = attach(loaded.model)
    info = target.info
    facts = ModelFacts(
        name,
        None,
        "float32",
        weights,
        info.vocab_size,
        info.context_limit,
        info.layers,
        info.hidden_size,
    )
    return Stage(loaded, facts, Live(target, ModelHost(target, loaded.tokenizer)))


def shown(step: StepStats) -> Shown:
    """A step in comparable form."""
    tree = step.tree
    return Shown(
        tree.tokens.tolist(),
        tree.parents.tolist(),
        tree.sources,
        tree.route,
        step.path,
        step.committed,
        step.draft_calls,
    )


def lived(at: Stage, spelt: str, prompt: RecordedPrompt, asked: Asked) -> list[Shown]:
    """Every step of a live run, as the benchmark does it: a new engine for each prompt."""
    host = PricedHost(at.live.host, COSTS)
    engine = Engine(at.live.target, method(spelt), max_batch=1, host=host)
    found = []
    for text in prompt.texts:
        sampling = SamplingParams(
            temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p, seed=prompt.seed
        )
        eos = frozenset(asked.eos)
        request = Request(text.prompt, asked.max_new_tokens, sampling, eos=eos)
        found += [shown(e.stats) for e in engine.stream([request]) if isinstance(e, Stepped)]
    return found


def replayed(
    replayer: Replayer, spelt: str, prompt: RecordedPrompt
) -> tuple[list[Shown], Replayed]:
    """Every step of a replay, and what else it came to."""
    steps: list[Shown] = []

    def watch(turn: int, stats: StepStats) -> None:
        steps.append(shown(stats))

    found = replayer.replay(replayer.part(method(spelt)), prompt, watch)
    # A replay that missed something was begun again.
    return steps[len(steps) - len(found.played.steps) :], found
