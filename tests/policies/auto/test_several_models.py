"""``auto`` with two draft models: its tokens, which of them it uses, and what it learns of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fixed import FixedCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request, Stepped
from draftwood.engine.stats import StepStats
from draftwood.methods import method
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import DraftDtype, DraftModel, Expand, RequestLoad, Translation
from draftwood.sampling.sampler import SamplingParams
from tests.factories.markov_target import FakeHost, MarkovTarget

BOTH = "auto:neural=even+odd:even=model:odd=model:draft=even:odd.draft=odd"
ALONE = "auto:neural=even:even=model:draft=even"
KNOWN = MarkovTarget(vocab_size=40, sharpness=1.5)
PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)


@dataclass
class TwoModels(FakeHost):
    """Draft models that know the target's logits after even tokens, and after odd ones.

    Of the other tokens they know nothing. A level of each takes so many forwards of the target.
    """

    levels: Mapping[str, float] = field(default_factory=lambda: {"even": 0.05, "odd": 0.05})

    def model(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftModel, Translation | None]:
        chain = MarkovTarget(self.info.vocab_size)
        known = (torch.arange(self.info.vocab_size) % 2 == (name == "odd"))[None, :, None]
        chain.table = torch.where(known, KNOWN.table, 0.0)
        return chain, None

    def costs(self, key: CostsOf) -> LiveCosts:
        drafters = {
            s: Curve((1, 64), (self.levels[s], 2 * self.levels[s])) for s, _ in key.drafters
        }
        return FixedCosts(StepCosts(Curve((1, 101), (1.0, 2.0)), drafters))


def requests(heat: float) -> list[Request]:
    return [Request(PROMPT[: 4 + i], 40 + 7 * i, SamplingParams(heat, seed=i)) for i in range(4)]


def engine(
    name: str = BOTH, max_batch: int = 4, levels: Mapping[str, float] | None = None
) -> Engine:
    host = TwoModels(KNOWN.info, levels=levels) if levels else TwoModels(KNOWN.info)
    return Engine(KNOWN, method(name), max_batch=max_batch, host=host)


def steps(of: Engine, heat: float) -> list[StepStats]:
    return [event.stats for event in of.stream(requests(heat)) if isinstance(event, Stepped)]


def forwards(of: Engine) -> dict[str, int]:
    return {name: each.forwards for name, each in of._phases._drafters.items() if each.forwards}


@pytest.mark.parametrize("max_batch", [1, 4])
@pytest.mark.parametrize("heat", [0.0, 1.0])
@pytest.mark.parametrize("layout", ["coupled", "ranked"])
def test_two_models_change_no_token(layout: str, heat: float, max_batch: int) -> None:
    of = engine(f"{BOTH}:layout={layout}", max_batch)
    found, plain = of.generate(requests(heat)), engine("ar").generate(requests(heat))
    assert [done.tokens for done in found] == [done.tokens for done in plain]
    assert set(forwards(of)) == {"even", "odd"}


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_both_are_used_and_in_one_step(heat: float) -> None:
    taken = steps(engine(), heat)
    accepted = {step.tree.sources[node] for step in taken for node in step.path}
    assert accepted >= {"even", "odd"}
    assert any({"even", "odd"} <= set(step.kind.split("+")) for step in taken), "of one path"
    assert len(taken) < 0.8 * len(steps(engine(ALONE), heat)), "two know more than one"


@pytest.mark.parametrize("dear", ["even", "odd"])
def test_a_model_that_is_too_dear_is_not_run(dear: str) -> None:
    (cheap,) = {"even", "odd"} - {dear}
    of = engine(levels={dear: 3.0, cheap: 0.05})
    assert any(cheap in step.tree.sources for step in steps(of, 0.0))
    assert set(forwards(of)) == {cheap}


def test_one_forward_serves_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    of = engine()
    asked: list[int] = []
    for name in ("even", "odd"):
        drafter = of._phases._drafters[name]
        whole = drafter.expand

        def expand(slots: Any, queries: list[Expand], whole: Any = whole) -> Any:
            asked.append(len(slots))
            return whole(slots, queries)

        monkeypatch.setattr(drafter, "expand", expand)
    steps(of, 0.0)
    assert asked.count(1) < len(asked) / 2


def test_what_each_model_is_worth_is_learnt_of_it_alone() -> None:
    class Blind(TwoModels):
        """The second model knows nothing."""

        def model(
            self, name: Any, dtype: DraftDtype = "auto"
        ) -> tuple[DraftModel, Translation | None]:
            known, translation = super().model(name, dtype)
            assert isinstance(known, MarkovTarget)
            known.table = KNOWN.table if name == "even" else torch.zeros_like(KNOWN.table)
            return known, translation

    host = Blind(KNOWN.info, levels={"even": 0.15, "odd": 0.001})
    of = Engine(KNOWN, method(BOTH), max_batch=4, host=host)
    tuner = of._phases._tuner
    assert isinstance(tuner, AutoTuner)
    load = RequestLoad(10, 50, 1.0, 0.0)
    (before,) = tuner.begin([load])
    assert before.of("even") == before.of("odd")
    for _ in range(4):
        steps(of, 0.0)
    (after,) = tuner.begin([load])
    assert after.of("even").gain > before.of("even").gain
    assert after.of("odd").gain < 0.5 * before.of("odd").gain


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_candidates_of_the_second_model_are_calibrated(heat: float) -> None:
    of = engine()
    for _ in range(10):
        taken = steps(of, heat)
    labelled = [step.prediction.candidates for step in taken if step.prediction is not None]
    mine = [
        (p, hit)
        for each in labelled
        for source, p, hit in zip(each.sources, each.probabilities, each.taken, strict=True)
        if source == "odd"
    ]
    frequency = sum(hit for _, hit in mine) / len(mine)
    assert 0.02 < frequency < 0.9
    assert sum(p for p, _ in mine) / len(mine) == pytest.approx(frequency, rel=0.15)
