"""Whether a policy and a verifier are lossless together: enumerated over a few tiny laws.

Small trees suffice: a node's law depends on its siblings and on the path above it, and trees of six
nodes hold every such constellation that three tokens allow. What does not show here is a defect
that only large trees have; sampling the real model is for that.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.enumeration import Moment, Size, Step, StepLaw
from draftwood.lab.lossless.tape import MOST, TooManyOutcomesError
from draftwood.lab.lossless.tiny import Scene
from draftwood.protocols import Policy, Verifier

EXACT = 1e-12
ROUNDED = 1e-6
"""Largest differences of probabilities that rounding explains, in float64 and in float32."""

SCENES = (
    Scene(0),
    Scene(1, temperature=0.6),
    Scene(2),
    Scene(3, temperature=1.5),
    Scene(4, agreeing=True),
    Scene(5, temperature=0.0),
    *(Scene(seed, temperature=seed % 4 / 2) for seed in range(6, 18)),
)
"""The further ones are for policies of which a scene has few outcomes."""

BASIC = 6
ROUNDED_SCENES = 3
ENOUGH = 600
"""Outcomes beyond which the basic scenes will do."""

SIZES = (Size(6, 3), Size(5, 3), Size(4, 3), Size(4, 2), Size(3, 2), Size(2, 2), Size(2, 1))
"""The first with few enough outcomes is taken."""

FEW = 800
"""Outcomes of drafting, or of verifying, that are gone through at one of the larger sizes."""

LATER = 2
LOOKED_AT = 8
ANCHOR = 0


@dataclass(frozen=True)
class ExactCheck:
    """What came of enumerating a policy and a verifier.

    Attributes:
        subject: policy and verifier.
        passed: whether all laws were the target's.
        difference: largest between probabilities in float64.
        rounded: the same in float32.
        budget: most nodes of a tree, root excluded.
        room: depth of the deepest; laws were compared over one token more.
        laws: how many steps were enumerated, second steps included.
        trees: drafted in all of them.
        outcomes: of all of them.
        accepted: expected accepted tokens a step, mean over the scenes at temperatures above 0.
        complaint: why there is nothing to compare; empty if there is.
    """

    kind: ClassVar = "exact"

    subject: str
    passed: bool
    difference: float = 0.0
    rounded: float = 0.0
    budget: int = 0
    room: int = 0
    laws: int = 0
    trees: int = 0
    outcomes: int = 0
    accepted: float = 0.0
    complaint: str = ""

    def __str__(self) -> str:
        if self.complaint:
            return f"exact law: {self.complaint}"
        return (
            f"exact law: off by {self.difference:.1e} (float32 {self.rounded:.1e}) over "
            f"{self.laws} laws, {self.trees} trees of {self.budget} nodes and depth {self.room} at "
            f"most, {self.outcomes} outcomes"
        )


def check_exact(subject: str, policy: Policy, verifier: Verifier) -> ExactCheck:
    """Enumerate a step in every scene, and some further ones where the policy has learnt from it.

    Args:
        subject: what to call the pair.
        policy: with any settings; its trees are kept small by what a step is allowed to draft.
        verifier: judges them.
    """
    try:
        for size in SIZES[:-1]:
            with suppress(TooManyOutcomesError):
                return _enumerate(subject, policy, verifier, size, FEW)
        return _enumerate(subject, policy, verifier, SIZES[-1], MOST)
    except DraftwoodError as error:
        return ExactCheck(subject, passed=False, complaint=str(error))


def _enumerate(
    subject: str, policy: Policy, verifier: Verifier, size: Size, most: int
) -> ExactCheck:
    start = Moment((ANCHOR,), policy.start())
    laws: list[StepLaw] = []
    accepted: list[float] = []
    for i, scene in enumerate(SCENES):
        if i >= BASIC and sum(len(law.endings) for law in laws) > ENOUGH:
            break
        step = Step(policy, verifier, scene, size, start)
        laws.append(step.law(most))
        if scene.temperature:
            accepted.append(laws[-1].accepted)
        laws += [
            Step(policy, verifier, scene, size, moment).law(most)
            for moment in _later(step, laws[-1], start)
        ]
    rounded = [
        Step(policy, verifier, scene, size, start, torch.float32).law(most)
        for scene in SCENES[:ROUNDED_SCENES]
    ]
    difference = max(law.difference for law in laws)
    difference32 = max(law.difference for law in rounded)
    return ExactCheck(
        subject,
        passed=difference <= EXACT and difference32 <= ROUNDED,
        difference=difference,
        rounded=difference32,
        budget=max(len(end.tree) - 1 for law in laws for end in law.endings),
        room=max(end.tree.depth for law in laws for end in law.endings),
        laws=len(laws) + len(rounded),
        trees=sum(law.trees for law in (*laws, *rounded)),
        outcomes=sum(len(law.endings) for law in (*laws, *rounded)),
        accepted=fmean(accepted),
    )


def _later(step: Step, law: StepLaw, start: Moment) -> Iterator[Moment]:
    """Moments after the likeliest endings at which the policy knows something new."""
    known = [start.state]
    for ending in sorted(law.endings, key=lambda end: -end.probability)[:LOOKED_AT]:
        moment = step.learnt(ending)
        if moment.state not in known:
            known.append(moment.state)
            yield moment
        if len(known) > LATER:
            return
