"""The greedy order: the likeliest children and one sampled from the rest."""

import numpy as np
import pytest

from draftwood.lab.lossless.canned import ranked
from draftwood.lab.lossless.enumeration import Size, StepEnumeration, StepStart
from draftwood.lab.lossless.exact import EXACT, check_exact
from draftwood.lab.lossless.tiny import VOCAB, Scene
from draftwood.methods import method
from draftwood.policies.sampled import Sampled
from draftwood.protocols import Growth, Verifier
from draftwood.tree import Draw
from draftwood.verifiers.rejection import Rejection
from draftwood.verifiers.traversal import Traversal
from tests.factories.enumerated_draws import asked, check_law, four, runs
from tests.factories.scripted_sources import drafter, paths

WOR, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.ONE_HOT


def test_all_children_but_one_are_the_likeliest() -> None:
    # 1 and 2 are the likeliest below the root; below 4, 1 and 2 one child is, beside a drawn one.
    drawn = {(): [4], (4,): [43], (1,): [14], (2,): [23]}
    sources = drafter(four, drawn=drawn)
    tree = sources.grow(Sampled(shape="3x2", last="greedy"), temperature=1.0)
    assert paths(tree) == [
        *[(4,), (1,), (2,)],
        *[(4, 43), (1, 14), (2, 23), (4, 41), (1, 11), (2, 21)],
    ]
    assert tree.draws.tolist() == [ONE_HOT, WOR, *[ONE_HOT] * 2, *[WOR] * 3, *[ONE_HOT] * 3]
    # All on the scale of q, though what is drawn is a share of what the likeliest leave.
    assert np.exp(tree.logq[1:4]) == pytest.approx([0.1, 0.5, 0.25])
    assert asked(sources) == [
        ([0], 2, ONE_HOT, []),
        ([0], 1, WOR, [{1, 2}]),
        ([1, 2, 3], 1, ONE_HOT, []),
        ([1, 2, 3], 1, WOR, [{41}, {11}, {21}]),
    ]


def test_an_only_child_is_drawn() -> None:
    sources = drafter(four, drawn={(): [3], (3,): [32], (1,): [14]})
    tree = sources.grow(Sampled(shape="2x1", last="greedy"), temperature=1.0)
    assert paths(tree) == [(3,), (1,), (3, 32), (1, 14)]
    assert tree.draws.tolist() == [ONE_HOT, WOR, ONE_HOT, WOR, WOR]
    assert asked(sources)[2:] == [([1, 2], 1, WOR, [])]


def test_the_deepest_subtree_can_go_to_the_likeliest() -> None:
    drawn = {(): [4], (4,): [43], (1,): [14], (2,): [23], (3,): [34]}
    policy = Sampled(shape="sparse", last="greedy", deepest="last", budget=9)
    tree = drafter(four, drawn=drawn).grow(policy, temperature=1.0)
    # Three children for the likeliest, 1, and two for the drawn one, 4.
    assert paths(tree) == [
        *[(4,), (2,), (3,), (1,)],
        *[(4, 43), (1, 14), (1, 12), (4, 41), (1, 11)],
    ]


def test_where_the_likeliest_take_everything_nothing_is_drawn() -> None:
    sources = drafter({0: [(1, 0.6), (2, 0.4)]})
    tree = sources.grow(Sampled(shape="3x2", last="greedy"), temperature=1.0)
    assert paths(tree) == [(1,), (2,)]
    assert drafter({}).grow(Sampled(last="greedy"), temperature=1.0).route == "plain"


@pytest.mark.parametrize("verifier", [Rejection(), Traversal()], ids=["rejection", "traversal"])
@pytest.mark.parametrize("shape", ["2x2", "3x1", "1x2x1", "sparse"])
@pytest.mark.parametrize("deepest", ["first", "last"])
def test_it_is_lossless(verifier: Verifier, shape: str, deepest: str) -> None:
    policy = Sampled(shape=shape, last="greedy", deepest=deepest)  # type: ignore[arg-type]
    check = check_exact("it", policy, verifier)
    assert check.passed, str(check)
    assert check.difference <= EXACT
    # Of three tokens nothing is left to draw below a root that has four children.
    assert check.trees > check.steps or (shape, deepest) == ("sparse", "first")


@pytest.mark.parametrize("shape", ["3x1", "2x2", "4"])
@pytest.mark.parametrize("deepest", ["first", "last"])
def test_its_trees_are_drawn_as_they_declare(shape: str, deepest: str) -> None:
    """Over five tokens, so that the rest of q has more than one."""

    def q(path: tuple[int, ...]) -> tuple[float, ...]:
        return ((0.4, 0.25, 0.2, 0.1, 0.05), (0.05, 0.0, 0.25, 0.3, 0.4))[sum(path) % 2]

    policy = Sampled(shape=shape, last="greedy", deepest=deepest)  # type: ignore[arg-type]
    found = list(runs(policy, q, Growth(0, 9, 99, 1.0)))
    check_law(found, q)
    assert len(found) > 1


@pytest.mark.parametrize("k", range(1, VOCAB + 1))
def test_rejection_accepts_as_many_as_any_rule_can(k: int) -> None:
    """Of k - 1 certain tokens and one sampled from the rest: their p, and the overlap beside it."""
    policy = Sampled(shape=str(k), last="greedy")
    for seed in range(12):
        scene = Scene(seed, temperature=0.8)
        p, q = scene.p((0,)), scene.q("draft", (0,), 0.8)
        top = ranked(q)[: k - 1]
        rest = q.copy()
        rest[top] = 0.0
        rest /= rest.sum() or 1.0
        most = p[top].sum() + np.minimum(np.delete(p, top), np.delete(rest, top)).sum()
        step = StepEnumeration(policy, Rejection(), scene, Size(k, 1), StepStart((0,), None))
        assert step.law().accepted == pytest.approx(float(most), abs=1e-12)


def test_the_method() -> None:
    found = method("greedy-order")
    assert found.policy.draws == {ONE_HOT, WOR}
    assert isinstance(found.verifier, Rejection)
    assert not found.same_tokens(1.0)
