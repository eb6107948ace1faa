"""Which pairs there are: every registered policy, as recipes set it too, with every verifier."""

from draftwood.lab.lossless.exact import ExactCheck
from draftwood.lab.lossless.pairs import Refusal, check_pair, registered_pairs, registered_policies
from draftwood.methods import method, recipes, registry
from draftwood.methods.recipe import build
from tests.factories.enumerable_policies import Stateless


def test_policies_in_default_settings_and_as_recipes_set_them() -> None:
    found = registered_policies()
    assert set(registry.names("policies")) <= set(found)
    assert found["isotropic of iso5"] == method("iso5").policy
    assert all(build(recipe).policy in found.values() for recipe in recipes().values())
    # None twice under two names.
    assert all(list(found.values()).count(policy) == 1 for policy in found.values())


def test_every_policy_meets_every_verifier() -> None:
    pairs = list(registered_pairs())
    assert len(pairs) == len(registered_policies()) * len(registry.names("verifiers"))
    assert len({subject for subject, _, _ in pairs}) == len(pairs)


def test_a_refused_pair_says_why() -> None:
    found = check_pair("drawn + walk", Stateless(), "walk")
    assert isinstance(found, Refusal)
    assert found.passed
    assert "verifier walk is not lossless for the nodes that method drawn + walk draws" in str(
        found
    )


def test_a_pair_is_enumerated() -> None:
    found = check_pair("chain + walk", method("pld").policy, "walk")
    assert isinstance(found, ExactCheck)
    assert found.passed
    assert found.subject == "chain + walk"
    assert found.outcomes > 20
