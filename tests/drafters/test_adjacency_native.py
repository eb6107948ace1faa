"""Compiled functions of the adjacency table: equal to dictionaries and to rounds of queries."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.drafters.adjacency import live, native
from draftwood.drafters.adjacency.drafter import Adjacency, AdjacencyTables
from draftwood.drafters.adjacency.live import LiveTable
from draftwood.policies.auto.features import COPIED, SOURCES, TABLE, copied_codes
from draftwood.policies.auto.forecast import Predictor
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import (
    Candidates,
    Continuation,
    Descend,
    Descent,
    Describe,
    Expand,
    Outcome,
    Prefill,
    TargetInfo,
    TargetOutput,
)
from draftwood.tree import TreeBuilder
from tests.factories.markov_target import FakeHost
from tests.factories.prepared_tables import prepared_table, random_rows

V = 12
HOST = FakeHost(TargetInfo(V, 64, 1, 8, torch.device("cpu"), torch.float32))

pytestmark = pytest.mark.skipif(native.functions() is None, reason="needs a C++ compiler")


def ranked(rng: np.random.Generator, n: int, k: int) -> TargetOutput:
    probs = rng.dirichlet([0.2] * V, n).astype(np.float32)
    order = np.argsort(-probs, axis=1, kind="stable")[:, :k].astype(np.int64)
    return TargetOutput(
        torch.zeros(1, 1), order[:, 0].copy(), order, np.take_along_axis(probs, order, axis=1)
    )


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 9), st.booleans(), st.sampled_from([V, 2**20, 2**31])
)
def test_rows_equal_those_of_dictionaries(seed: int, rows: int, bigram: bool, size: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [LiveTable(rows, 3, 0.01, bigram=bigram, plain=plain) for plain in (False, True)]
    some = rng.integers(size, size=6)  # few, so that they come again

    def pairs(count: int) -> tuple[list[int], list[int]]:
        before = np.where(rng.random(count) < 0.1, -1, rng.choice(some, count))
        return before.tolist(), rng.choice(some, count).tolist()

    for _ in range(20):
        given_pairs = pairs(int(rng.integers(1, 6)))
        output = ranked(rng, len(given_pairs[0]), 4)
        for table in tables:
            table.harvest(*given_pairs, output.top_tokens, output.top_probs)
        asked = pairs(8)
        answers = [table.find(*asked) for table in tables]
        assert answers[0] == answers[1]
        (tokens, logq), (others, other_logq) = (
            table.successors(found) for table, (found, _) in zip(tables, answers, strict=True)
        )
        assert np.array_equal(tokens, others)
        assert np.allclose(logq, other_logq, rtol=1e-6)


def test_an_index_grows_and_forgets_the_oldest() -> None:
    """Far beyond the room that it has at first, and around the ring several times."""
    rng = np.random.default_rng(0)
    tables = [LiveTable(1000, 2, 0.01, bigram=True, plain=plain) for plain in (False, True)]
    for _ in range(100):
        before, tokens = (rng.integers(300, size=70).tolist() for _ in range(2))
        output = ranked(rng, 70, 2)
        for table in tables:
            table.harvest(before, tokens, output.top_tokens, output.top_probs)
        asked = [rng.integers(300, size=200).tolist() for _ in range(2)]
        assert tables[0].find(*asked) == tables[1].find(*asked)


class Weighed(Predictor):
    """Any probability for each combination of codes, the likelier the better a token is ranked."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def probability(self, codes: Sequence[int]) -> float:
        drawn = np.random.default_rng([self._seed, *codes]).random()
        return min(1.0, 0.2 + 0.6 * drawn + 0.3 * (codes[COPIED] > 1))


def taught(seed: int, *, prepared: bool, **fields: object) -> AdjacencyTables:
    rng = np.random.default_rng(seed)
    spec = Adjacency(**{"width": 5, **fields})  # type: ignore[arg-type]
    table = prepared_table(random_rows(rng, V, 30, spec.width), V, spec.width) if prepared else None
    tables = AdjacencyTables(spec, spec.width, table)
    prompt = rng.integers(V, size=int(rng.integers(1, 40)))
    rows = ranked(rng, len(prompt), spec.width)
    tables.begin(0, Prefill(prompt, int(rng.integers(V)), rows))
    for _ in range(2):
        builder = TreeBuilder(int(rng.integers(V)))
        for _ in range(3):
            builder.add(int(rng.integers(len(builder))), int(rng.integers(V)), "adjacency")
        tree = builder.build()
        tables.observe(0, Outcome(tree, (), (3,), ranked(rng, len(tree), spec.width)))
    return tables


class Grown:
    """A pool after the table was asked, and how often it was asked for one level."""

    def __init__(
        self, tables: AdjacencyTables, seed: int, copies: Sequence[int], most: int, *, plain: bool
    ) -> None:
        rng = np.random.default_rng([seed, 1])
        self.pool = Pool(
            int(rng.integers(V)), Weighed(seed), float(rng.choice([0.01, 0.1, 0.3])), most, SOURCES
        )
        if copies:
            offer = Continuation(tuple(copies), 4, 1, 1)
            code = copied_codes(SOURCES[COPIED], offer, preferred=True)
            self.pool.copy(offer.tokens, code, "context")
        self.levels = 0
        policy, deepest = Auto(), int(rng.integers(1, 9))
        asking = policy._rank(self.pool, [(TABLE, "adjacency")], range(len(self.pool)), deepest)
        answer: Candidates | list[int] | Descent | None = None
        while True:
            try:
                query = asking.send(answer)
            except StopIteration:
                break
            if isinstance(query, Expand):
                self.levels += 1
                [answer] = tables.expand([0], [query])
            elif plain:
                answer = None
            elif isinstance(query, Describe):
                [answer] = tables.describe([0], [query])
            else:
                assert isinstance(query, Descend)
                [answer] = tables.descend([0], [query])

    def facts(self) -> list[object]:
        pool, builder = self.pool, self.pool.builder
        lists = builder.tokens, builder.parents, builder.depths, builder.sources, pool.codes
        return [*lists, pool.children, pool._answered]


@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, V - 1), max_size=6),
    st.sampled_from([3, 20, 256]),
    st.booleans(),
    st.booleans(),
)
def test_a_descent_equals_rounds_of_queries(
    seed: int, copies: list[int], most: int, prepared: bool, bigram: bool
) -> None:
    tables = taught(seed, prepared=prepared, bigram=bigram)
    quick, plain = (Grown(tables, seed, copies, most, plain=plain) for plain in (False, True))
    assert quick.levels == 0
    assert quick.facts() == plain.facts()
    assert quick.pool.path == pytest.approx(plain.pool.path, rel=1e-12)
    assert quick.pool.probabilities == pytest.approx(plain.pool.probabilities, rel=1e-12)


def test_the_comparison_sees_a_difference() -> None:
    grown = [
        Grown(taught(seed, prepared=True), 5, [1, 2], 256, plain=plain).facts()
        for seed, plain in ((5, False), (5, True), (6, True))
    ]
    assert grown[0] == grown[1] != grown[2]


def test_rows_narrower_than_asked_for_end_there() -> None:
    tables = taught(3, prepared=False, width=2)
    quick, plain = (Grown(tables, 3, [], 256, plain=plain) for plain in (False, True))
    assert quick.facts() == plain.facts()
    assert len(quick.pool) > 1


def test_without_a_compiler_levels_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with_one = Grown(taught(7, prepared=True), 7, [1], 256, plain=False)
    monkeypatch.setattr(live, "functions", lambda: None)
    tables = taught(7, prepared=True)
    without = Grown(tables, 7, [1], 256, plain=False)
    assert without.levels > 0
    assert without.facts() == with_one.facts()


def test_buffers_grow_with_the_pool() -> None:
    tables = taught(9, prepared=True)
    room = native._ROOM
    quick, plain = (Grown(tables, 9, [], 4 * room, plain=plain) for plain in (False, True))
    assert quick.facts() == plain.facts()


def test_paths_are_products() -> None:
    pool = Grown(taught(11, prepared=True), 11, [2, 3], 256, plain=False).pool
    assert len(pool) > 10
    for node, parent in enumerate(pool.builder.parents):
        if node:
            expected = pool.path[parent] * pool.probabilities[node]
            assert math.isclose(pool.path[node], expected, rel_tol=1e-12)
