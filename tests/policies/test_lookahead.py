"""Lookahead decoding: its window against literal Jacobi iterations, its pool and its tree."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.lab.lossless.enumeration import Size, StepEnumeration, StepStart
from draftwood.lab.lossless.exact import EXACT
from draftwood.lab.lossless.tiny import Scene
from draftwood.methods import method
from draftwood.policies.lookahead import (
    POOL,
    WINDOW,
    Lookahead,
    LookaheadState,
    moved_on,
    with_ngrams,
)
from draftwood.protocols import Outcome, TargetOutput
from draftwood.tree import ROOT, TokenTree
from draftwood.verifiers.walk import Walk
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.scripted_sources import Sources, check_shape, paths

Tokens = tuple[int, ...]


def likeliest(seed: int, text: Sequence[int], vocabulary: int) -> int:
    """The target: a token for every text, by its last three tokens."""
    return random.Random(f"{seed} {list(text[-3:])}").randrange(vocabulary)


class Steps:
    """A request with a target, decoded greedily by the policy."""

    def __init__(self, policy: Lookahead, seed: int, vocabulary: int = 3) -> None:
        self.policy, self.seed, self.vocabulary = policy, seed, vocabulary
        self.text: list[int] = [0]
        self.state = policy.start()

    def after(self, *tokens: int) -> int:
        return likeliest(self.seed, (*self.text, *tokens), self.vocabulary)

    def step(self, room: int = 1000) -> TokenTree:
        tree = Sources().grow(self.policy, self.text[-1], room=room, state=self.state)
        argmax = np.array([self.after(*tree.path_tokens(node)) for node in range(len(tree))])
        path: list[int] = []
        node = ROOT
        while (child := tree.child(node, int(argmax[node]))) is not None:
            path.append(child)
            node = child
        committed = (*(int(tree.tokens[i]) for i in path), int(argmax[node]))
        top = argmax[:, None]
        rows = TargetOutput(torch.zeros(len(tree), 1), argmax, top, np.ones_like(top, np.float32))
        self.state = self.policy.learn(self.state, Outcome(tree, tuple(path), committed, rows))
        self.text += committed
        return tree


@given(
    seed=st.integers(0, 10**6),
    columns=st.integers(1, 5),
    ngram=st.integers(2, 5),
    vocabulary=st.sampled_from([2, 3, 8]),
)
def test_every_window_is_that_of_literal_jacobi_iterations(
    seed: int, columns: int, ngram: int, vocabulary: int
) -> None:
    """With few tokens the window's nodes coincide all the time."""
    run = Steps(Lookahead(columns=columns, ngram=ngram, candidates=4), seed, vocabulary)
    for _ in range(12):
        before, window = [*run.text], run.state.window
        fresh = [
            run.after(*window[0][: c + 1], *(level[c] for level in window[1:]))
            for c in range(columns if window else 0)
        ]
        run.step()
        committed = run.text[len(before) :]
        # Tokens by their absolute positions: those that were there or are new stay where they are.
        old = len(before) + 1
        known = {
            (level, old + c + level): tokens[c]
            for level, tokens in enumerate([*window, tuple(fresh)])
            for c in range(columns if window else 0)
        }
        dropped = len(window) + 1 == ngram
        assert len(run.state.window) == min(len(window) + 1, ngram - 1)
        for level, tokens in enumerate(run.state.window):
            assert len(tokens) == columns
            for c, token in enumerate(tokens):
                place = (level + dropped, len(run.text) + 1 + c + level)
                assert token == known.get(place, token)
                assert place in known or token in committed
        if dropped:
            for c in range(columns):
                rest = (*(level[c] for level in window[1:]), fresh[c])
                assert rest in run.state.pool[window[0][c]] or columns > 4
    assert run.text[1:] == greedy(seed, vocabulary, len(run.text) - 1)


def greedy(seed: int, vocabulary: int, count: int) -> list[int]:
    text = [0]
    for _ in range(count):
        text.append(likeliest(seed, text, vocabulary))
    return text[1:]


def test_a_tree_by_hand() -> None:
    window = ((1, 2, 3), (5, 6, 7), (8, 9, 10))
    pool = {0: ((1, 5, 8), (1, 2, 4), (7, 7, 7), (6, 6, 6)), 4: ((1, 1, 1),)}
    policy = Lookahead(columns=3, ngram=4, candidates=3)
    tree = Sources().grow(policy, 0, state=LookaheadState(window, pool))
    assert paths(tree) == [
        *[(1,), (1, 5), (1, 5, 8), (1, 2), (1, 2, 4), (7,), (7, 7), (7, 7, 7)],
        *[(1, 2, 6), (1, 2, 6, 9), (1, 2, 3), (1, 2, 3, 7), (1, 2, 3, 7, 10)],
    ]
    assert [*tree.sources[1:]] == [POOL] * 8 + [WINDOW] * 5
    assert tree.route == "lookahead"


@pytest.mark.parametrize("budget", [0, 3, 4, 11, 16, 40, 500])
@pytest.mark.parametrize("room", [0, 1, 3, 100])
def test_a_small_budget_is_divided(budget: int, room: int) -> None:
    run = Steps(Lookahead(budget=budget), 3, 50)
    for _ in range(30):
        check_shape(run.step(room), budget, room)
    paths_that_fit = budget // 4
    assert len(run.state.window[0]) == min(15, -(-paths_that_fit // 2))


def test_the_first_step_drafts_nothing_and_the_window_fills_up() -> None:
    run = Steps(Lookahead(columns=4, ngram=4, candidates=2), 1, 30)
    sizes = [run.step().sources.count(WINDOW) for _ in range(5)]
    assert sizes == [0, 4, 8, 12, 12]


def test_the_pool_holds_the_latest() -> None:
    pool = with_ngrams({}, [(1, 2, 3), (1, 4, 5), (2, 2, 2), (1, 2, 3), (1, 6, 6)], 2)
    assert pool == {1: ((6, 6), (2, 3)), 2: ((2, 2),)}
    assert with_ngrams(pool, [], 2) == pool
    assert with_ngrams(pool, [(2, 1, 1)], 2)[2] == ((1, 1), (2, 2))
    assert pool[2] == ((2, 2),), "the state before is not changed"


def test_unknown_tokens_and_new_columns_are_filled() -> None:
    assert moved_on((1, 2, -1, 4), 1, 4, (8, 9)) == (2, 9, 4, 9)
    assert moved_on((1, 2), 5, 3, (8,)) == (8, 8, 8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ngram", [2, 3])
def test_every_step_of_a_full_window_is_lossless(seed: int, ngram: int) -> None:
    """By enumeration, from the states that the likeliest outcomes lead to."""
    policy = Lookahead(columns=2, ngram=ngram, candidates=2)
    scene = Scene(seed, temperature=0.5 * (seed % 3))
    start = StepStart((0,), policy.start())
    trees = []
    for _ in range(7):
        step = StepEnumeration(policy, Walk(), scene, Size(6, 3), start)
        law = step.law()
        assert law.difference <= EXACT
        likeliest_end = max(law.endings, key=lambda end: end.probability)
        trees.append(likeliest_end.tree)
        start = step.next_start(likeliest_end)
    assert max(tree.drafted for tree in trees) >= ngram
    assert WINDOW in trees[-1].sources


def test_ngrams_of_a_loop_are_accepted() -> None:
    target = MarkovTarget(vocab_size=40, sharpness=3.0)
    request = Request((1, 2, 3), 120, eos=())
    for name in ("lookahead", "lookahead:budget=24"):
        [done] = Engine(target, method(name), host=FakeHost(target.info)).generate([request])
        assert done.tokens == target.greedy((1, 2, 3), 120)
        assert done.tally.mean_acceptance_length > 1.2
        assert done.tally.accepted > 0
