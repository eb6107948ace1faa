"""Acceptance by rank: what a step counts, what ranks are worth, and when the tree changes."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request, Stepped
from draftwood.methods import method
from draftwood.policies._rank_acceptance import (
    DEFAULT_ACCEPTANCE,
    FIRST,
    MEASURED,
    PRIOR_WEIGHT,
    RankCounts,
    RankTuner,
)
from draftwood.policies._static import likeliest_paths
from draftwood.policies.sequoia import Sequoia
from draftwood.protocols import Growth, Outcome, RequestLoad, StepReport, StepTimes
from draftwood.sampling.params import SamplingParams
from draftwood.tree import TokenTree, tree_of
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.scripted_sources import NO_ROWS, drafter, outcome

# Three children of the root, two of its second child, one of that one's first.
TREE = tree_of([0, 10, 20, 30, 21, 22, 23], [-1, 0, 0, 0, 2, 2, 4])
LOADS = [RequestLoad(5, 9, 1.0, 0.0)] * 2


def counted(*steps: Outcome) -> RankCounts:
    counts = RankCounts()
    for step in steps:
        counts.add(step)
    return counts


@pytest.mark.parametrize(
    ("path", "verified", "accepted"),
    [
        ((), [1, 1, 1], [0, 0, 0]),
        ((1,), [1, 1, 1], [1, 0, 0]),
        ((3,), [1, 1, 1], [0, 0, 1]),
        ((2,), [2, 2, 1], [0, 1, 0]),
        ((2, 5), [2, 2, 1], [0, 2, 0]),
        ((2, 4, 6), [3, 2, 1], [2, 1, 0]),
    ],
)
def test_children_of_verified_parents_count(
    path: tuple[int, ...], verified: list[int], accepted: list[int]
) -> None:
    counts = counted(outcome(TREE, *path))
    assert counts.steps == 1
    assert counts.verified[:4] == [*verified, 0]
    assert counts.accepted[:4] == [*accepted, 0]


def test_steps_that_say_nothing_do_not_count() -> None:
    failed = Outcome(TREE, (), (), NO_ROWS)
    nothing = outcome(tree_of([0], [-1]))
    counts = counted(failed, nothing)
    assert (counts.steps, sum(counts.verified)) == (0, 0)
    assert counts.acceptance == pytest.approx(DEFAULT_ACCEPTANCE)


def test_counts_outweigh_the_assumption() -> None:
    w = PRIOR_WEIGHT
    flat = tree_of([0, 1, 2], [-1, 0, 0])
    counts = counted(*[outcome(flat, 1)] * 90, *[outcome(flat, 2)] * 6, *[outcome(flat)] * 4)
    first = (w * 0.6 + 90) / (w + 100)
    second = (w * 0.15 + 6) / (w + 100)
    third = second * 4 / 9
    # No node had a third child: the law goes on from the second.
    assert counts.acceptance[:3] == pytest.approx((first, second, third))
    assert counts.acceptance[9] == pytest.approx(third * 9 / 100)


def test_no_rank_is_worth_more_than_the_one_above() -> None:
    flat = tree_of([0, 1, 2, 3], [-1, 0, 0, 0])
    found = counted(*[outcome(flat, 3)] * 50).acceptance
    assert all(low <= high for high, low in pairwise(found))
    assert found[1] == found[2] > found[3]


# --- the tuner ------------------------------------------------------------------------------------


def observe(tuner: RankTuner, *steps: Outcome) -> None:
    predicted = tuner.observe(StepReport([None] * len(steps), steps, StepTimes()))
    assert predicted == [None] * len(steps)


def test_the_tree_is_computed_when_the_steps_have_doubled() -> None:
    tuner = RankTuner(20)
    flat = tree_of([0, 1, 2], [-1, 0, 0])
    changed = []
    [before, same] = tuner.begin(LOADS)
    assert before is same
    assert before == MEASURED, "nothing is assumed before it was measured"
    for step in range(1, 70):
        # A third of the steps accept nothing: requests of a batch count one by one.
        observe(tuner, outcome(flat, 1) if step % 3 else outcome(flat))
        [now, _] = tuner.begin(LOADS)
        if now is not before:
            assert now == likeliest_paths(tuner.counts.acceptance, 20)
            changed.append(step)
        before = now
    assert changed == [FIRST * 2**i for i in range(5)]
    observe(tuner, *[outcome(flat, 1)] * 59)
    assert tuner.begin(LOADS)[0] is not before


def grown(policy: Sequoia, tuner: RankTuner) -> TokenTree:
    """The tree of the next step, by a drafter with a hundred children of everything."""
    sources = drafter(lambda token: [(100 * token + i, 0.5 / i) for i in range(1, 100)])
    [forecast, _] = tuner.begin(LOADS)
    growing = policy.grow(Growth(0, 100, 99, forecast=forecast), None)
    answer = None
    while True:
        try:
            answer = sources.answer(growing.send(answer))
        except StopIteration as end:
            tree: TokenTree = end.value
            return tree


@pytest.mark.parametrize(("accepted", "width", "depth"), [(True, 1, 8), (False, 8, 1)])
def test_what_is_accepted_decides_the_shape(accepted: bool, width: int, depth: int) -> None:
    """A chain where the first child always is, next to one level where none is."""
    policy, tuner = Sequoia(budget=8), RankTuner(8)
    for _ in range(200):
        tree = grown(policy, tuner)
        path = [
            node for node in range(1, len(tree)) if tree.path(node) == first_children(tree, node)
        ]
        observe(tuner, outcome(tree, *path if accepted else ()))
    tree = grown(policy, tuner)
    assert (tree.parents.tolist().count(0), tree.depth) == (width, depth)


def first_children(tree: TokenTree, node: int) -> tuple[int, ...]:
    """The path of first children as long as that of a node."""
    found: list[int] = []
    while len(found) < tree.depths[node]:
        parent = (found or [0])[-1]
        found.append(tree.parents.tolist().index(parent))
    return tuple(found)


def test_a_file_is_not_overruled(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text('{"acceptance": [0.5], "paths": [[0], [0, 0]]}')
    host = FakeHost(MarkovTarget().info)
    assert Sequoia(tree=str(file)).tuner(host, {}) is None


def test_engines_on_a_host_go_on_with_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    target, made = MarkovTarget(sharpness=2.0), dict[Any, Any]()
    host = FakeHost(target.info)
    monkeypatch.setattr(host, "share", lambda key, make: made.setdefault(key, make()))
    found: list[RankTuner] = []
    learnt = MEASURED
    for name in ("sequoia:budget=12", "sequoia:budget=12", "sequoia:budget=13"):
        tuner = Engine(target, method(name), host=host)._phases._tuner
        assert isinstance(tuner, RankTuner)
        found.append(tuner)
        [paths, _] = tuner.begin(LOADS)
        if name == "sequoia:budget=13":
            assert paths == MEASURED
        else:
            assert paths == learnt
        observe(tuner, *[outcome(tree_of([0, 1, 2], [-1, 0, 0]), 1)] * FIRST)
        learnt = likeliest_paths(tuner.counts.acceptance, 12)
    assert learnt != MEASURED
    first, second, other = found
    assert first.counts is second.counts is not other.counts


def test_requests_share_the_counts_and_their_tokens_do_not_depend_on_it() -> None:
    target = MarkovTarget(sharpness=2.0)
    engine = Engine(target, method("sequoia:budget=12"), host=FakeHost(target.info))
    requests = [Request((1, 2, i), 40, SamplingParams(0.9 * (i % 2), seed=i)) for i in range(4)]
    steps = [e.stats for e in engine.stream(requests) if isinstance(e, Stepped)]
    assert len({tuple(step.tree.parents.tolist()) for step in steps}) > 2
    together = Engine(target, method("sequoia:budget=12"), host=FakeHost(target.info))
    plain = Engine(target, method("ar"), host=FakeHost(target.info))
    assert [c.tokens for c in together.generate(requests)] == [
        c.tokens for c in plain.generate(requests)
    ]
    # What the first requests taught is there for the next one.
    [later, *_] = [e.stats for e in engine.stream(requests[:1]) if isinstance(e, Stepped)]
    [first, *_] = [e.stats for e in together.stream(requests[:1]) if isinstance(e, Stepped)]
    cold = Engine(target, method("sequoia:budget=12"), host=FakeHost(target.info))
    [fresh, *_] = [e.stats for e in cold.stream(requests[:1]) if isinstance(e, Stepped)]
    assert later.tree.parents.tolist() == first.tree.parents.tolist()
    assert first.tree.parents.tolist() != fresh.tree.parents.tolist()
