"""Plain decoding: a root, whatever there is to draft from."""

from draftwood.policies.plain import Plain
from tests.factories.scripted_sources import Sources, offer, outcome


def test_it_is_the_root_alone_and_asks_nothing() -> None:
    sources = Sources(offer(1, 2, 3), {5: [(1, 0.9)]})
    policy = Plain()
    tree = sources.grow(policy, anchor=5)
    assert (tree.tokens.tolist(), tree.route) == ([5], "plain")
    assert sources.asked == []
    assert (policy.budget, policy.sources) == (0, ())
    policy.learn(None, outcome(tree))
