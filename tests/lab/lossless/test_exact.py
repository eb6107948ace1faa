"""Enumerated laws: right pairs pass whatever they are made of, wrong ones never do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from draftwood.lab.lossless import exact
from draftwood.lab.lossless.enumeration import Size, StepEnumeration, StepStart
from draftwood.lab.lossless.exact import EXACT, SCENES, SIZES, check_exact
from draftwood.lab.lossless.tape import TooManyOutcomesError
from draftwood.lab.lossless.tiny import Scene
from draftwood.protocols import (
    Expand,
    Grower,
    Growth,
    Outcome,
    Policy,
    Verdict,
    Verification,
    Verifier,
)
from draftwood.tree import ROOT, Draw, TreeBuilder
from draftwood.verifiers.traversal import Traversal
from tests.factories import enumerable_policies
from tests.factories.enumerable_policies import Stateless
from tests.factories.literal_verifiers import Eager, Rejection

START = StepStart((0,), None)
WITHOUT, IID, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.ONE_HOT
RIGHT: list[Stateless] = [
    Stateless((2, 1)),
    Stateless((1, 1, 1)),
    Stateless((3,)),
    Stateless((2, 1), IID),
    Stateless((3,), IID),
    Stateless((2, 2), ONE_HOT),
    enumerable_policies.Adaptive((2, 1, 1)),
    enumerable_policies.SampledThenBest(),
]
WRONG: list[Stateless] = [
    enumerable_policies.Sorted((2, 1)),
    enumerable_policies.Sorted((3,)),
    enumerable_policies.Pruning(),
    enumerable_policies.Reranking(),
    enumerable_policies.Deduplicating((2, 1), IID),
    enumerable_policies.TopCalledSampled(),
]


def named(policies: Sequence[Policy]) -> list[Any]:
    return [pytest.param(p, id=f"{type(p).__name__}{i}") for i, p in enumerate(policies)]


@pytest.mark.parametrize("verifier", [Rejection(), Traversal()], ids=["rejection", "traversal"])
@pytest.mark.parametrize("policy", named(RIGHT))
def test_right_pairs_are_lossless(policy: Policy, verifier: Verifier) -> None:
    check = check_exact("it", policy, verifier)
    assert check.passed, str(check)
    assert check.difference <= EXACT
    assert 0 < check.rounded < 1e-6
    assert check.accepted > 0.3
    assert check.steps >= 9
    assert "off by" in str(check)


@pytest.mark.parametrize("verifier", [Rejection(), Traversal()], ids=["rejection", "traversal"])
@pytest.mark.parametrize("policy", named(WRONG))
def test_selecting_after_drawing_is_not_lossless(policy: Policy, verifier: Verifier) -> None:
    check = check_exact("it", policy, verifier)
    assert not check.passed
    assert check.difference > 0.01


@dataclass(frozen=True)
class Forgetful(Rejection):
    """Wrong: draws the bonus from p where it should be from what the children left."""

    def _one(self, case: Verification) -> Verdict:
        found = super()._one(case)
        if len(case.tree) == 1 or found.path:
            return found
        return Verdict((), int(case.p.probabilities([ROOT])[0].argmax()))


@pytest.mark.parametrize("policy", named(RIGHT[:3]))
@pytest.mark.parametrize("wrong", [Rejection(1.1), Rejection(0.9), Eager(), Forgetful()], ids=repr)
def test_wrong_verifiers_are_not_lossless(policy: Policy, wrong: Verifier) -> None:
    check = check_exact("it", policy, wrong)
    assert not check.passed
    assert check.difference > 1e-3


@dataclass(frozen=True)
class Astray(Rejection):
    def _one(self, case: Verification) -> Verdict:
        return Verdict((len(case.tree) - 1, 1), case.p.draw(ROOT, case.noise))


@dataclass(frozen=True)
class Twice(Rejection):
    """Wrong: tests a node twice, hoping for a second chance."""

    def _one(self, case: Verification) -> Verdict:
        accepted = len(case.tree) > 1 and any(case.noise.accepts(1, 0.5) for _ in range(2))
        return Verdict((1,) if accepted else (), case.p.draw(ROOT, case.noise))


@dataclass(frozen=True)
class LookingAhead(Rejection):
    """Wrong: chooses a token deep down and then commits nothing there."""

    def _one(self, case: Verification) -> Verdict:
        case.noise.choose(1, case.p.probabilities([0])[0])
        return Verdict((), case.p.draw(ROOT, case.noise))


@dataclass(frozen=True)
class Oversized(Stateless):
    def grow(self, growth: Growth, state: None) -> Grower:
        yield from ()
        builder = TreeBuilder(growth.anchor)
        builder.add_chain([0] * (growth.room + 1), self.source)
        return builder.build()


@dataclass(frozen=True)
class Undeclared(Stateless):
    draws: ClassVar = frozenset({Draw.ONE_HOT})


@dataclass(frozen=True)
class Shuffling(Stateless):
    def grow(self, growth: Growth, state: None) -> Grower:
        assert growth.noise is not None
        growth.noise.draft(5).random()
        return (yield from super().grow(growth, state))


@dataclass(frozen=True)
class AskingTwice(Stateless):
    def grow(self, growth: Growth, state: None) -> Grower:
        builder = TreeBuilder(growth.anchor)
        for _ in range(2):
            yield self.ask(growth, builder, [ROOT], 1, self.wanted(growth))
        return builder.build()


@dataclass(frozen=True)
class Elsewhere(Stateless):
    """Wrong: the numbers of no step."""

    def ask(self, growth: Growth, *asked: Any) -> Expand:
        return super().ask(Growth(0, 1, 1, temperature=growth.temperature), *asked)


@pytest.mark.parametrize(
    ("policy", "verifier", "complaint"),
    [
        (Stateless(), Twice(), "tested twice"),
        (Stateless(), Astray(), "not a path from the root"),
        (Stateless(), LookingAhead(), "the next step draws the same numbers"),
        (Oversized(), Rejection(), "4 deep where 6 and 3 are allowed"),
        (Undeclared(), Rejection(), "WITHOUT_REPLACEMENT nodes, which the policy does not declare"),
        (Shuffling(), Rejection(), "outside a drafter"),
        (AskingTwice(), Rejection(), "sampled in two queries"),
        (Elsewhere(), Rejection(), "other numbers than the step's"),
    ],
    ids=lambda part: type(part).__name__ if not isinstance(part, str) else "",
)
def test_broken_promises_are_failures(policy: Policy, verifier: Verifier, complaint: str) -> None:
    check = check_exact("it", policy, verifier)
    assert not check.passed
    assert complaint in check.complaint
    assert str(check) == f"exact probabilities: {check.complaint}"


@dataclass(frozen=True)
class Spoilt(Stateless):
    """Right in its first step only: what it has learnt makes it sort what it draws."""

    def start(self) -> Any:
        return 0

    def learn(self, state: Any, outcome: Outcome) -> Any:
        assert outcome.rows.top_probs.shape == (len(outcome.tree), 3)
        return state + len(outcome.path)

    def grow(self, growth: Growth, state: Any) -> Grower:
        kind = enumerable_policies.Sorted if state else Stateless
        return (yield from kind(self.shape, self.draw, self.source).grow(growth, None))


def test_what_a_policy_learns_is_enumerated_too() -> None:
    step = StepEnumeration(Spoilt(), Rejection(), SCENES[0], SIZES[1], StepStart((0,), 0))
    law = step.law()
    assert law.difference < EXACT
    check = check_exact("it", Spoilt(), Rejection())
    assert not check.passed
    assert check.difference > 1e-3


@dataclass(frozen=True)
class Counting(Stateless):
    """Right, and learns from every step."""

    def start(self) -> Any:
        return 0

    def learn(self, state: Any, outcome: Outcome) -> Any:
        return state + 1


def test_second_steps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "ENOUGH", 0)
    once = check_exact("it", Stateless((1,)), Rejection())
    more = check_exact("it", Counting((1,)), Rejection())
    assert more.passed
    # Whatever happens, it has learnt the same.
    assert more.steps == once.steps + exact.BASIC == 2 * exact.BASIC + exact.ROUNDED_SCENES


def test_a_sampled_token_is_accepted_as_often_as_can_be() -> None:
    """One child: the expected number of accepted tokens is the sum of min(p, q)."""
    for seed in range(8):
        scene = Scene(seed, temperature=0.7)
        step = StepEnumeration(Stateless((1,)), Rejection(), scene, Size(1, 1), START)
        overlap = np.minimum(scene.p((0,)), scene.q("draft", (0,), 0.7)).sum()
        law = step.law()
        assert law.accepted == pytest.approx(float(overlap), abs=1e-15)
        assert law.trees == np.count_nonzero(scene.q("draft", (0,), 0.7))


def test_a_law_is_compared_over_every_token_of_the_step() -> None:
    law = StepEnumeration(Stateless((1, 1)), Rejection(), Scene(2), Size(2, 2), START).law()
    assert max(len(ending.committed) for ending in law.endings) == 3
    assert sum(ending.probability for ending in law.endings) == pytest.approx(1)


def test_greedy_steps_have_one_outcome() -> None:
    scene = Scene(1, temperature=0.0)
    law = StepEnumeration(Stateless((2, 2)), Rejection(), scene, Size(6, 3), START).law()
    (ending,) = law.endings
    path = (0, *ending.committed)
    assert all(scene.p(path[:i])[path[i]] == 1 for i in range(1, len(path)))
    assert law.difference == 0


def test_rounding_shows_in_float32_only() -> None:
    size = Size(4, 2)
    double = StepEnumeration(Stateless(), Traversal(), Scene(0), size, START).law()
    single = StepEnumeration(Stateless(), Traversal(), Scene(0), size, START, torch.float32).law()
    assert double.difference < EXACT < single.difference < 1e-6


def test_trees_are_made_smaller_until_there_are_few_enough() -> None:
    step = StepEnumeration(Stateless((3, 3), IID), Rejection(), Scene(2), Size(12, 2), START)
    with pytest.raises(TooManyOutcomesError):
        step.law(most=50)
    check = check_exact("it", Stateless((3, 3), IID), Rejection())
    assert check.passed
    assert check.budget < 6
