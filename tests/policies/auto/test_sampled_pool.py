"""Trees of `auto` above temperature 0, where some of a model's tokens are drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.exact import EXACT, check_exact
from draftwood.methods import method, recipes
from draftwood.policies.auto import policy as auto
from draftwood.policies.auto.features import NOT_LISTED, RANKED_CODES, Codes, sampled_code
from draftwood.policies.auto.forecast import Forecast
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.sampled_pool import SampledPool
from draftwood.protocols import (
    FREE,
    NOTHING_PAYS,
    Bid,
    Expand,
    Grower,
    Growth,
    Price,
    Verifier,
)
from draftwood.tree import ROOT, Draw, TokenTree
from draftwood.verifiers.rejection import Rejection
from draftwood.verifiers.traversal import Traversal
from draftwood.verifiers.walk import Walk
from tests.factories.enumerated_draws import Dice
from tests.factories.scripted_sources import Row, check_shape, distributions, offer, paths
from tests.policies.auto.stage import Stage, given, model

WITHOUT = Draw.WITHOUT_REPLACEMENT


def given_kinds(
    copied: float = 0.6,
    ranked: float = 0.3,
    top: float = 0.3,
    drawn: tuple[float, float, float] = (0.5, 0.2, 0.05),
    price: float = 0.1,
) -> Forecast:
    """A probability for each kind of candidate, and for each place among the sampled ones."""

    def probability(codes: Codes) -> float:
        if codes[2] >= RANKED_CODES:
            return drawn[min((codes[2] - RANKED_CODES) // 10, 2)]
        if codes[0] > NOT_LISTED:
            return copied
        return ranked if codes[1] > NOT_LISTED else top

    return given(by=probability, floor=0.001, drafter_gain=1.0, price=price)


ROWS: dict[int, Row] = {0: [(1, 0.5), (2, 0.3), (3, 0.1), (4, 0.1)]}
NEURAL = Auto(neural=("draft",), max_depth=1, layout="either")
DRAWN = Auto(neural=("draft",), max_depth=1, layout="drawn")


# --- what is drawn, and what is not ---------------------------------------------------------------


def sampled(stage: Stage) -> list[Expand]:
    """The queries for samples."""
    return [query for query in stage.expansions("draft") if query.draw is WITHOUT]


def test_the_likeliest_comes_last_and_is_excluded_from_sampling() -> None:
    stage = Stage(model=model(ROWS, {(): [4, 3]}))
    tree = stage.grow(DRAWN, given_kinds(top=0.3), temperature=1.0)
    assert [(list(q.nodes), q.k, list(q.exclude)) for q in sampled(stage)] == [
        ([ROOT], 2, [frozenset({1})])
    ]
    assert paths(tree) == [(4,), (3,), (1,)]
    assert tree.draws.tolist() == [Draw.ONE_HOT, WITHOUT, WITHOUT, Draw.ONE_HOT]
    assert tree.q_rows.tolist() == [-1, 0, 0, -1]
    assert tree.sources == ("root", "draft", "draft", "draft")
    assert np.exp(tree.logq[1:]) == pytest.approx([0.5, 0.2, 0.3])
    assert tree.route == "auto"


def test_a_greedy_request_draws_nothing() -> None:
    stage = Stage(model=model(ROWS, {(): [4, 3]}))
    tree = stage.grow(NEURAL, given_kinds())
    assert not sampled(stage)
    assert paths(tree) == [(1,), (2,), (3,), (4,)]
    assert set(tree.draws.tolist()) == {Draw.ONE_HOT}


@pytest.mark.parametrize(
    ("top", "layout", "expected"),
    [
        # Ranked 2, 3 and 4 are worth 3 * (0.3 - 0.1), drawn ones 0.4 + 0.1.
        (0.3, "either", [(1,), (2,), (3,), (4,)]),
        (0.25, "either", [(4,), (3,), (1,)]),
        (0.3, "drawn", [(4,), (3,), (1,)]),
        (0.25, "ranked", [(1,), (2,), (3,), (4,)]),
    ],
)
def test_the_layout_that_is_expected_to_add_more(
    top: float, layout: Any, expected: list[tuple[int, ...]]
) -> None:
    policy = Auto(neural=("draft",), max_depth=1, layout=layout)
    stage = Stage(model=model(ROWS, {(): [4, 3, 2]}))
    assert paths(stage.grow(policy, given_kinds(top=top), temperature=1.0)) == expected


@pytest.mark.parametrize(("price", "draws"), [(0.6, 0), (0.4, 1), (0.1, 2), (0.04, 3), (0.001, 3)])
def test_as_many_are_sampled_as_pay(price: float, draws: int) -> None:
    stage = Stage(model=model(ROWS, {(): [2, 3, 4]}))
    tree = stage.grow(DRAWN, given_kinds(price=price), temperature=1.0)
    assert tree.draws.tolist().count(WITHOUT) == draws


def test_a_candidate_that_does_not_pay_may_be_sampled() -> None:
    # The copied token and the model's best are too unlikely; one of them is drawn.
    stage = Stage(offer(7), model=model({0: [(1, 0.5), (7, 0.5)]}, {(): [7, 1]}))
    forecast = given_kinds(copied=0.05, top=0.05, drawn=(0.5, 0.01, 0.01))
    tree = stage.grow(NEURAL, forecast, temperature=1.0)
    assert [(q.k, q.exclude) for q in sampled(stage)] == [(1, [frozenset()])]
    assert paths(tree) == [(7,), (1,)]
    assert tree.draws.tolist() == [Draw.ONE_HOT, WITHOUT, Draw.ONE_HOT]
    assert tree.sources == ("root", "draft", "draft")
    # Those who are sure to be drafted are kept out.
    stage = Stage(offer(7), model=model(ROWS, {(): [2]}))
    stage.grow(DRAWN, given_kinds(copied=0.5, top=0.2, drawn=(0.5, 0.01, 0.01)), temperature=1.0)
    assert [list(q.exclude) for q in sampled(stage)] == [[frozenset({1, 7})]]


def test_a_sampled_tokens_code_is_the_probability_its_siblings_leave() -> None:
    stage = Stage(model=model(ROWS, {(): [4, 3]}))
    stage.grow(DRAWN, given_kinds(top=0.3), temperature=1.0)
    codes, labelled = stage.bid.report.labelled((3,))
    # The model's likeliest, then the two that were drawn.
    assert [neural for _, _, neural in codes[1:]] == [sampled_code(0, 0.7), sampled_code(1, 0.7)]
    assert labelled.taken == [False, False, True]


def test_sampled_nodes_stay_whatever_the_price() -> None:
    rows = ROWS | {4: [(5, 0.9)], 5: [(6, 0.9)]}
    policy = Auto(neural=("draft",), max_depth=3, layout="drawn")
    forecast = given_kinds(drawn=(0.5, 0.01, 0.01))
    drawn: dict[tuple[int, ...], list[int]] = {(): [4]}
    for price in (FREE, Price(0.4), Price(0.9), NOTHING_PAYS):
        stage = Stage(model=model(rows, drawn), price=price)
        tree = stage.grow(policy, forecast, temperature=1.0)
        assert {(4,)} <= set(paths(tree))
        assert [tree.draws[i] for i, path in enumerate(paths(tree), 1) if path == (4,)] == [WITHOUT]
        assert stage.bid.report.expected(price) == pytest.approx(1 + reach(tree))
    assert (1,) not in paths(tree), "what was not drawn must pay"


def reach(tree: TokenTree) -> float:
    """Sum of path probabilities."""
    found = [0.0] * len(tree)
    for node in range(1, len(tree)):
        found[node] = found[tree.parents[node]] + float(tree.logq[node])
    return float(np.exp(found[1:]).sum())


@examples(
    seed=st.integers(0, 10**6),
    price=st.sampled_from([FREE, Price(0.1), Price(0.4), NOTHING_PAYS]),
)
def test_shapes(seed: int, price: Price) -> None:
    rng = np.random.default_rng(seed)
    rows = distributions(seed, most=6)
    stage = Stage(
        offer(*rng.integers(0, 40, rng.integers(1, 5)).tolist()),
        distributions(seed + 1, most=4),
        Dice(table=rows, ranking="draft"),
        price,
    )
    copied, ranked, top = rng.uniform(0.02, 0.9, 3).tolist()
    first, second, third = sorted(rng.uniform(0, 0.9, 3).tolist(), reverse=True)
    recent_price = float(rng.uniform(0.02, 0.3))
    forecast = given_kinds(copied, ranked, top, (first, second, third), recent_price)
    budget, room = int(rng.integers(1, 20)), int(rng.integers(1, 6))
    policy = Auto(neural=("draft",), layout=rng.choice(["either", "drawn"]))
    tree = stage.grow(policy, forecast, budget=budget, room=room, temperature=1.0)
    check_shape(tree, budget, room)
    kinds, parents = tree.draws.tolist(), tree.parents.tolist()
    for node in range(1, len(tree)):
        before = [i for i in range(1, node) if parents[i] == parents[node]]
        if kinds[node] == WITHOUT:
            assert all(kinds[i] == WITHOUT for i in before), "those that were drawn come first"
            assert len({tree.q_rows[i] for i in (*before, node)}) == 1
        else:
            assert tree.q_rows[node] == -1
    planned = {path for q, path in asked_paths(stage)}
    there = {paths(tree)[i - 1][:-1] for i in range(1, len(tree)) if kinds[i] == WITHOUT}
    assert there <= planned
    # Nothing that was drawn is missing, and it stands in the order of drawing.
    for handle, (path, excluded) in enumerate(stage.model.handles):
        found = [
            int(tree.tokens[i])
            for i in range(1, len(tree))
            if kinds[i] == WITHOUT and tree.q_rows[i] == handle
        ]
        row = [(t, s) for t, s in stage.model.successors((0, *path)[-1]) if t not in excluded]
        front = [token for token, _ in stage.model.draw(row, path)]
        assert found == front[: len(found)]
        assert found or not front


def asked_paths(stage: Stage) -> Iterator[tuple[frozenset[int], tuple[int, ...]]]:
    for path, excluded in stage.model.handles:
        yield excluded, path


# --- it is lossless -------------------------------------------------------------------------------


class Priced(Auto):
    """Is given a price that depends on what was drawn, as those of a batch do."""

    def grow(self, growth: Growth, state: None) -> Grower:
        growing = super().grow(growth, state)
        answer: Any = None
        while True:
            try:
                query = growing.send(answer)
            except StopIteration as end:
                tree: TokenTree = end.value
                return tree
            answer = self.priced(query) if isinstance(query, Bid) else (yield query)

    def priced(self, bid: Bid) -> Price:
        tokens = bid.report.candidates.builder.tokens
        return (FREE, Price(0.4), Price(0.2), NOTHING_PAYS)[sum(tokens) % 4]


class Careless(Priced):
    """Drops what was drawn if it does not like it."""

    def priced(self, bid: Bid) -> Price:
        pool = bid.report.candidates
        if not isinstance(pool, SampledPool):
            return FREE
        pool._fixed = {ROOT}
        for node in range(1, len(pool)):
            if pool.builder.draws[node] == WITHOUT:
                pool.path[node] = 0.9 if pool.builder.tokens[node] == 0 else 0.0
            pool.path[node] = min(pool.path[node], pool.path[pool.builder.parents[node]])
        return Price(0.01)


FORECASTS = (
    given_kinds(0.6, 0.3, 0.3, (0.3, 0.3, 0.3)),
    given_kinds(0.05, 0.05, 0.5, (0.4, 0.4, 0.4)),
    given_kinds(0.05, 0.05, 0.05, (0.4, 0.1, 0.05)),
    given_kinds(0.05, 0.3, 0.05, (0.4, 0.4, 0.4), price=0.02),
    given_kinds(0.5, 0.05, 0.05, (0.5, 0.5, 0.5)),
)


@contextmanager
def given_forecast(forecast: Forecast) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "DEFAULT_FORECAST", forecast)
        yield


@pytest.mark.parametrize("verifier", [Traversal(), Rejection()], ids=["traversal", "rejection"])
@pytest.mark.parametrize("forecast", FORECASTS)
def test_it_is_lossless_whatever_is_expected(forecast: Forecast, verifier: Verifier) -> None:
    with given_forecast(forecast):
        check = check_exact("auto", Priced(neural=("draft",), width=1, layout="either"), verifier)
    assert check.passed, str(check)
    assert check.difference <= EXACT
    assert check.outcomes > 50


@pytest.mark.slow
@pytest.mark.parametrize("verifier", [Traversal(), Rejection(), Walk()], ids=type)
@pytest.mark.parametrize("forecast", FORECASTS[1:4])
def test_coupled_candidates_may_be_dropped_and_stay_lossless(
    forecast: Forecast, verifier: Verifier
) -> None:
    with given_forecast(forecast):
        check = check_exact("auto", Priced(neural=("draft",), width=1), verifier)
    assert check.passed, str(check)
    assert check.difference <= EXACT
    assert check.outcomes > 50


def test_dropping_sampled_nodes_is_not_lossless() -> None:
    with given_forecast(FORECASTS[2]):
        check = check_exact(
            "careless", Careless(neural=("draft",), width=1, layout="either"), Traversal()
        )
    assert not check.passed
    assert check.difference > 0.01


# --- as a method ----------------------------------------------------------------------------------


def test_the_layout_decides_which_verifiers_are_lossless() -> None:
    assert recipes()["auto"].verifier == "traversal"
    assert method("auto").policy.draws == {Draw.ONE_HOT}
    assert method("auto:verifier=walk").policy.draws == {Draw.ONE_HOT}
    assert method("auto:drafter=model").policy.draws == {Draw.ONE_HOT, Draw.COUPLED}
    assert method("auto:drafter=model:verifier=walk").policy.draws == {Draw.ONE_HOT, Draw.COUPLED}
    assert method("auto:drafter=model:layout=either").policy.draws == {Draw.ONE_HOT, WITHOUT}
    with pytest.raises(
        DraftwoodError, match="walk is not lossless for the nodes that method auto draws"
    ):
        method("auto:drafter=model:verifier=walk:layout=drawn")
    assert method("auto:drafter=model:verifier=walk:layout=ranked").policy.draws == {Draw.ONE_HOT}
    with pytest.raises(DraftwoodError, match="coupled, ranked, drawn, either"):
        method("auto:layout=both")
