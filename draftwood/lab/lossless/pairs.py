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
    """

    kind: ClassVar = "refused"
    passed: ClassVar = True

    subject: str
    reason: str

    def __str__(self) -> str:
        return f"refused: {self.reason}"


@dataclass(frozen=True)
class Pair:
    """A policy and a verifier.

    Attributes:
        name: of both, for people.
        policy: with its settings decided.
        verifier: registered name.
    """

    name: str
    policy: Policy
    verifier: str

    def method(self) -> Method:
        """The pair as a method with canned drafters.

        Raises:
            DraftwoodError: they are not lossless together, or so they say.
        """
        drafters = {source: CannedSpec() for source in self.policy.sources}
        verifier = cast(Verifier, registry.load("verifiers", self.verifier)())
        return Method(self.name, self.policy, drafters, verifier)

    def check(self) -> ExactCheck | Refusal:
        """Enumerate the pair, unless it is refused."""
        try:
            chosen = self.method()
        except DraftwoodError as error:
            return Refusal(self.name, str(error))
        return check_exact(self.name, chosen.policy, chosen.verifier)


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


def registered_pairs() -> Iterator[Pair]:
    """All pairs, refused ones included."""
    for name, policy in registered_policies().items():
        for verifier in registry.names("verifiers"):
            yield Pair(f"{name} + {verifier}", policy, verifier)
