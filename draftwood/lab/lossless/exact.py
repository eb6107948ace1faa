"""Exact check that a policy and a verifier are lossless together, over a few tiny laws.

Small trees suffice: a node's law depends on its siblings and on the path above it, and trees of six
nodes have every such constellation of three tokens. A defect that only large trees have does not
show here; sampling a real model can show it.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.enumeration import Size, StepEnumeration, StepLaw, StepStart
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
"""The scenes after the basic ones are for policies with few outcomes in each scene."""

BASIC = 6
"""Number of basic scenes."""
ROUNDED_SCENES = 3
"""Number of scenes that are enumerated in float32, too."""
ENOUGH = 600
"""Number of outcomes from which the basic scenes suffice."""

SIZES = (Size(6, 3), Size(5, 3), Size(4, 3), Size(4, 2), Size(3, 2), Size(2, 2), Size(2, 1))
"""The first one with few enough outcomes is used."""

FEW = 800
"""Limit on the outcomes of drafting, and of verifying, at all sizes but the last."""

LATER = 2
"""Most second steps of a scene."""
SEARCHED = 8
"""Most probable outcomes that are searched for a second step with a new state."""
ANCHOR = 0


@dataclass(frozen=True)
class ExactCheck:
    """Result of enumerating a policy and a verifier.

    Attributes:
        subject: policy and verifier.
        passed: whether all laws were the target's.
        difference: largest difference of probabilities in float64.
        rounded: the same in float32.
        budget: most nodes of a tree, root excluded.
        room: depth of the deepest tree; laws were compared over one token more.
        steps: number of enumerated steps, second steps included.
        trees: number of drafted trees.
        outcomes: number of outcomes.
        accepted: expected accepted tokens per step, mean over scenes at temperatures above 0.
        complaint: why there is no law to compare; empty if there is one.
    """

    kind: ClassVar = "exact"

    subject: str
    passed: bool
    difference: float = 0.0
    rounded: float = 0.0
    budget: int = 0
    room: int = 0
    steps: int = 0
    trees: int = 0
    outcomes: int = 0
    accepted: float = 0.0
    complaint: str = ""

    def __str__(self) -> str:
        if self.complaint:
            return f"exact probabilities: {self.complaint}"
        return (
            f"exact probabilities: off by {self.difference:.1e} (float32 {self.rounded:.1e}) over "
            f"{self.steps} steps, {self.trees} trees of {self.budget} nodes and depth {self.room} "
            f"at most, {self.outcomes} outcomes"
        )


def check_exact(subject: str, policy: Policy, verifier: Verifier) -> ExactCheck:
    """Enumerate a first step in every scene, and some second steps after the policy has learnt.

    Args:
        subject: name of the pair.
        policy: with any settings; the step's limits keep its trees small.
        verifier: verifies the trees.
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
    start = StepStart((ANCHOR,), policy.start())
    laws: list[StepLaw] = []
    accepted: list[float] = []
    for i, scene in enumerate(SCENES):
        if i >= BASIC and sum(len(law.endings) for law in laws) > ENOUGH:
            break
        step = StepEnumeration(policy, verifier, scene, size, start)
        laws.append(step.law(most))
        if scene.temperature:
            accepted.append(laws[-1].accepted)
        laws += [
            StepEnumeration(policy, verifier, scene, size, later).law(most)
            for later in _later(step, laws[-1], start)
        ]
    rounded = [
        StepEnumeration(policy, verifier, scene, size, start, torch.float32).law(most)
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
        steps=len(laws) + len(rounded),
        trees=sum(law.trees for law in (*laws, *rounded)),
        outcomes=sum(len(law.endings) for law in (*laws, *rounded)),
        accepted=fmean(accepted),
    )


def _later(step: StepEnumeration, law: StepLaw, start: StepStart) -> Iterator[StepStart]:
    """Starts after the most probable outcomes that gave the policy a new state."""
    known = [start.state]
    for ending in sorted(law.endings, key=lambda end: -end.probability)[:SEARCHED]:
        later = step.next_start(ending)
        if later.state not in known:
            known.append(later.state)
            yield later
        if len(known) > LATER:
            return
