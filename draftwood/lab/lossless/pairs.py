"""All pairs of a registered policy and a registered verifier.

Drafters are canned, so that no model is needed; which pairs there are is for the registry, the
recipes and :class:`draftwood.methods.recipe.Method` to say.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import CannedSpec
from draftwood.lab.lossless.exact import ExactCheck, check_exact
from draftwood.methods import recipes, registry
from draftwood.methods.recipe import Method, build, rebound
from draftwood.protocols import Policy, Verifier


@dataclass(frozen=True)
class Refusal:
    """A pair that is refused.

    Attributes:
        subject: policy and verifier.
        reason: why not, a sentence.
        passed: whether it may be; no registered method's own pair may.
    """

    kind: ClassVar = "refused"

    subject: str
    reason: str
    passed: bool = True

    def __str__(self) -> str:
        return f"refused: {self.reason}"


def paired(name: str, policy: Policy, verifier: str) -> Method:
    """A policy and a registered verifier as a method with canned drafters.

    Raises:
        DraftwoodError: they are not lossless together.
    """
    drafters = {source: CannedSpec() for source in policy.sources}
    return Method(name, policy, drafters, cast(Verifier, registry.load("verifiers", verifier)()))


def check_pair(name: str, policy: Policy, verifier: str) -> ExactCheck | Refusal:
    """Enumerate a policy and a registered verifier, unless they are refused.

    The refusal of a registered method's own pair is a failure.
    """
    try:
        chosen = paired(name, policy, verifier)
    except DraftwoodError as error:
        own = [(build(recipe).policy, recipe.verifier) for recipe in recipes().values()]
        return Refusal(name, str(error), passed=(policy, verifier) not in own)
    return check_exact(name, chosen.policy, chosen.verifier)


def registered_policies() -> dict[str, Policy]:
    """All policies in default settings, and those that recipes set otherwise, by name."""
    found = {
        name: cast(Policy, registry.load("policies", name)()) for name in registry.names("policies")
    }
    for name, recipe in recipes().items():
        policy = build(recipe).policy
        if policy not in found.values():
            found[f"{recipe.policy} of {name}"] = policy
        for source in recipe.optional:
            bound = build(rebound(recipe, {source: recipe.drafters[source]})).policy
            found[f"{recipe.policy} of {name} with {source}"] = bound
    return found


def registered_pairs() -> Iterator[tuple[str, Policy, str]]:
    """Name, policy and verifier of all pairs, refused ones included."""
    for name, policy in registered_policies().items():
        for verifier in registry.names("verifiers"):
            yield f"{name} + {verifier}", policy, verifier
