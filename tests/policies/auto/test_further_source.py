"""A fourth source of ``auto``, defined in this file alone: trees, calibration and tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request, Stepped
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import (
    Candidates,
    Continuation,
    Drafter,
    DrafterSpec,
    Expand,
    Host,
    Outcome,
    Prefill,
)
from draftwood.sampling.sampler import SamplingParams
from tests.factories.markov_target import FakeHost, MarkovTarget

TARGET = MarkovTarget(sharpness=2.0)
PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)


@dataclass(frozen=True)
class Toy(DrafterSpec):
    """A source that knows the target and is right after odd tokens."""

    def build(self, host: Host) -> "ToyDrafter":
        return ToyDrafter()


class ToyDrafter(Drafter):
    def __init__(self) -> None:
        self.last: dict[int, tuple[int, int]] = {}  # the last two tokens

    def begin(self, slot: int, prefill: Prefill) -> None:
        self.last[slot] = int(prefill.prompt[-1]), prefill.first

    def observe(self, slot: int, outcome: Outcome) -> None:
        before, last = (int(outcome.tree.tokens[0]), *outcome.committed)[-2:]
        self.last[slot] = before, last

    def release(self, slot: int) -> None:
        del self.last[slot]

    def after(self, before: int, token: int) -> int:
        best = int(TARGET.logits((before, token)).argmax())
        return best if token % 2 else (best + 1) % TARGET.info.vocab_size

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        return [(Continuation((self.after(*self.last[s]),), 5, 1, 1),) for s in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        answers = []
        for slot, query in zip(slots, queries, strict=True):
            tree = query.tree
            rows = []
            for node in query.nodes:
                parent = tree.parents[node]
                before = tree.tokens[parent] if node else self.last[slot][0]
                rows.append([self.after(before, tree.tokens[node])])
            scores = np.log(np.full((len(rows), 1), 0.5, dtype=np.float32))
            answers.append(Candidates(np.array(rows, dtype=np.int64), scores))
        return answers


def with_toy(kind: str) -> Method:
    plain = method("auto")
    assert isinstance(plain.policy, Auto)
    policy = replace(plain.policy, also=f"toy/{kind}")
    return replace(plain, policy=policy, drafters={**plain.drafters, "toy": Toy()})


def decoded(each: Method, heat: float, engine: Engine | None = None) -> list[StepStats]:
    engine = engine or Engine(TARGET, each, host=FakeHost(TARGET.info))
    requests = [Request(PROMPT[: 4 + i], 60, SamplingParams(heat, seed=i)) for i in range(3)]
    return [e.stats for e in engine.stream(requests) if isinstance(e, Stepped)]


@pytest.mark.parametrize("kind", ["ranked", "copied"])
@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_a_fourth_source_drafts_and_changes_no_token(kind: str, heat: float) -> None:
    requests = [Request(PROMPT[: 4 + i], 60, SamplingParams(heat, seed=i)) for i in range(3)]
    host = FakeHost(TARGET.info)
    found = Engine(TARGET, with_toy(kind), host=host).generate(requests)
    plain = Engine(TARGET, method("ar"), host=host).generate(requests)
    assert [done.tokens for done in found] == [done.tokens for done in plain]
    steps = decoded(with_toy(kind), heat)
    assert any("toy" in step.tree.sources for step in steps)
    accepted = [step.tree.sources[node] for step in steps for node in step.path]
    assert accepted.count("toy") > 0


def test_its_candidates_are_calibrated_by_their_own_frequency() -> None:
    engine = Engine(TARGET, with_toy("ranked"), host=FakeHost(TARGET.info))
    for _ in range(12):
        steps = decoded(with_toy("ranked"), 0.0, engine)
    labelled = [step.prediction.candidates for step in steps if step.prediction is not None]
    mine = [
        (p, hit)
        for each in labelled
        for source, p, hit in zip(each.sources, each.probabilities, each.taken, strict=True)
        if source == "toy"
    ]
    frequency = sum(hit for _, hit in mine) / len(mine)
    assert 0.1 < frequency < 0.9
    assert sum(p for p, _ in mine) / len(mine) == pytest.approx(frequency, abs=0.12)
    # By its own codes: the calibration has learnt buckets with its digit.
    tuner = engine._phases._tuner
    assert isinstance(tuner, AutoTuner)
    assert [source.name for source in tuner.calibration.sources[3:]] == ["toy"]
    codes = {codes[3] for codes in tuner.calibration.at(0.0).totals()}
    assert len(codes) > 2


@pytest.mark.parametrize(
    "wrong", ["toy", "toy/neural", "context/ranked", "a/ranked+a/copied", "a/ranked+"]
)
def test_a_source_without_a_kind_or_named_twice_is_refused(wrong: str) -> None:
    with pytest.raises(DraftwoodError, match=r"write NAME/copied|name different ones"):
        Auto(also=wrong)
