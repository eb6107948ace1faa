"""Compiled functions of the adjacency table: equal to dictionaries and to rounds of queries."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.drafters.adjacency import live, native
from draftwood.drafters.adjacency.drafter import Adjacency, AdjacencyTables
from draftwood.drafters.adjacency.live import LiveTable
from draftwood.kernels.compiled import _command
from draftwood.policies.auto.features import COPIED, NEURAL, SOURCES, TABLE, coding, copied_codes
from draftwood.policies.auto.forecast import Predictor
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import (
    Candidates,
    Coding,
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

pytestmark = pytest.mark.skipif(_command() is None, reason="needs a C++ compiler")


def test_with_a_compiler_there_are_functions() -> None:
    assert native.functions() is not None


def ranked(rng: np.random.Generator, n: int, k: int, apart: int = 1) -> TargetOutput:
    """Rows of random tokens, which are multiples of ``apart``."""
    probs = rng.dirichlet([0.2] * V, n).astype(np.float32)
    order = np.argsort(-probs, axis=1, kind="stable")[:, :k].astype(np.int64)
    best = np.take_along_axis(probs, order, axis=1)
    return TargetOutput(torch.zeros(1, 1), apart * order[:, 0], apart * order, best)


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
        output = ranked(rng, len(given_pairs[0]), int(rng.integers(1, 5)))
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


def taught(
    seed: int, *, prepared: int | None = 5, apart: int = 1, **fields: object
) -> AdjacencyTables:
    """A table that has seen a prompt and two steps, above a prepared one of a width."""
    rng = np.random.default_rng(seed)
    spec = Adjacency(**{"width": 5, **fields})  # type: ignore[arg-type]
    table = None
    if prepared is not None:
        rows = {
            (before if before < 0 else apart * before, apart * token): {
                apart * after: p for after, p in row.items()
            }
            for (before, token), row in random_rows(rng, V, 30, prepared).items()
        }
        table = prepared_table(rows, apart * V, prepared)
    tables = AdjacencyTables(spec, spec.width, table)
    prompt = apart * rng.integers(V, size=int(rng.integers(1, 40)))
    first = apart * int(rng.integers(V))
    tables.begin(0, Prefill(prompt, first, ranked(rng, len(prompt), spec.width, apart)))
    for _ in range(2):
        builder = TreeBuilder(apart * int(rng.integers(V)))
        for _ in range(3):
            parent, token = int(rng.integers(len(builder))), apart * int(rng.integers(V))
            builder.add(parent, token, "adjacency")
        tree = builder.build()
        rows_of_tree = ranked(rng, len(tree), spec.width, apart)
        tables.observe(0, Outcome(tree, (), (3 * apart,), rows_of_tree))
    return tables


class Grown:
    """A pool after the table was asked, and how often it was asked for one level."""

    def __init__(
        self,
        tables: AdjacencyTables,
        seed: int,
        copies: Sequence[int],
        most: int,
        *,
        plain: bool,
        apart: int = 1,
    ) -> None:
        rng = np.random.default_rng([seed, 1])
        floor = float(rng.choice([0.01, 0.1, 0.3]))
        self.pool = Pool(apart * int(rng.integers(V)), Weighed(seed), floor, most, SOURCES)
        if copies:
            offer = Continuation(tuple(apart * token for token in copies), 4, 1, 1)
            code = copied_codes(SOURCES[COPIED], offer, preferred=True)
            self.pool.copy(offer.tokens, code, "context")
        if rng.random() < 0.3:  # a model was asked, too
            tokens = apart * rng.choice(V, (1, 2), replace=False)
            logq = np.log(np.array([[0.6, 0.3]], dtype=np.float32))
            self.pool.offer(NEURAL, "draft", [0], tokens, logq)
            if rng.random() < 0.5:  # and offered nothing that is likely enough
                self.pool._answered[-1] |= 1 << NEURAL
        self.levels = 0
        policy, deepest = Auto(width=int(rng.integers(1, 9))), int(rng.integers(1, 9))
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


SCALES = (1, 6000, 2**31 // V)
"""Between two tokens: vocabularies whose keys and tokens have 32 and 16, 64 and 32 bits."""


@settings(max_examples=200)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, V - 1), max_size=6),
    st.sampled_from([0, 3, 20, 256]),
    st.sampled_from([None, 3, 5, 7]),
    st.booleans(),
    st.sampled_from(SCALES),
    st.sampled_from([0.0, 0.01, 0.5]),
    st.sampled_from([3, 65536]),
)
def test_a_descent_equals_rounds_of_queries(
    seed: int,
    copies: list[int],
    most: int,
    prepared: int | None,
    bigram: bool,
    apart: int,
    least: float,
    rows: int,
) -> None:
    tables = taught(
        seed, prepared=prepared, apart=apart, bigram=bigram, min_score=least, max_rows=rows
    )
    quick, plain = (
        Grown(tables, seed, copies, most, plain=plain, apart=apart) for plain in (False, True)
    )
    assert quick.levels == 0
    assert quick.facts() == plain.facts()
    assert quick.pool.path == pytest.approx(plain.pool.path, rel=1e-12)
    assert quick.pool.probabilities == pytest.approx(plain.pool.probabilities, rel=1e-12)


def test_the_comparison_sees_a_difference() -> None:
    grown = [
        Grown(taught(seed, prepared=5), 5, [1, 2], 256, plain=plain).facts()
        for seed, plain in ((5, False), (5, True), (6, True))
    ]
    assert grown[0] == grown[1] != grown[2]


def test_rows_narrower_than_asked_for_end_there() -> None:
    tables = taught(3, prepared=None, width=2)
    quick, plain = (Grown(tables, 3, [], 256, plain=plain) for plain in (False, True))
    assert quick.facts() == plain.facts()
    assert len(quick.pool) > 1


def test_without_a_compiler_levels_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with_one = Grown(taught(7, prepared=5), 7, [1], 256, plain=False)
    monkeypatch.setattr(live, "functions", lambda: None)
    tables = taught(7, prepared=5)
    without = Grown(tables, 7, [1], 256, plain=False)
    assert without.levels > 0
    assert without.facts() == with_one.facts()


def test_buffers_grow_with_the_pool() -> None:
    tables = taught(9, prepared=5)
    room = native._ROOM
    quick, plain = (Grown(tables, 9, [], 4 * room, plain=plain) for plain in (False, True))
    assert quick.facts() == plain.facts()


def test_paths_are_products() -> None:
    pool = Grown(taught(11, prepared=5), 11, [2, 3], 256, plain=False).pool
    assert len(pool) > 10
    for node, parent in enumerate(pool.builder.parents):
        if node:
            expected = pool.path[parent] * pool.probabilities[node]
            assert math.isclose(pool.path[node], expected, rel_tol=1e-12)


def test_a_mean_of_the_least_probability_is_kept() -> None:
    """Of two sure tokens, that the live and the prepared row name, each has one half."""
    table = prepared_table({(-1, 1): {2: 1.0}}, V, 1)
    tables = AdjacencyTables(Adjacency(width=1, min_score=0.5), 1, table)
    row = TargetOutput(
        torch.zeros(1, 1), np.array([3]), np.array([[3]]), np.ones((1, 1), dtype=np.float32)
    )
    tables.begin(0, Prefill(np.array([1]), 1, row))
    builder = TreeBuilder(1)
    query = Expand("adjacency", builder, [0], 1)
    [levels] = tables.expand([0], [query])
    found = Descend(
        "adjacency",
        builder,
        [0],
        [],
        [1.0],
        1,
        coding(SOURCES[TABLE], 1),
        np.full((1, SOURCES[TABLE].codes), 0.9),
        [0],
        *(0.01, 0.1, 1, 9),
    )
    [descent] = tables.descend([0], [found])
    assert descent is not None
    assert descent.tokens == levels.tokens[0].tolist() != [-1]


def asked(**changes: object) -> Descend:
    given: dict[str, Any] = {
        "source": "adjacency",
        "tree": TreeBuilder(1),
        "nodes": [0],
        "children": [],
        "paths": [1.0],
        "k": 2,
        "coding": coding(SOURCES[TABLE], 2),
        "chances": np.full((1, SOURCES[TABLE].codes), 0.9),
        "kinds": [0],
        "floor": 0.01,
        "least": 0.1,
        "deepest": 4,
        "room": 9,
    }
    return Descend(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"k": 3}, "a coding of 2 ranks is too short for 3"),
        ({"chances": np.ones((1, 5))}, r"chances are \(1, 5\)"),
        ({"kinds": [1]}, r"kinds \[1\]"),
        ({"kinds": [-1]}, r"kinds \[-1\]"),
    ],
)
def test_queries_that_do_not_fit_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        taught(1).descend([0], [asked(**changes)])


@pytest.mark.parametrize("least", [0.0, 0.5])
def test_arrays_may_lie_in_memory_as_they_like(least: float) -> None:
    tables = taught(2)
    codes, known = SOURCES[TABLE].codes, coding(SOURCES[TABLE], 2)
    chances = np.linspace(0.2, 0.9, 2 * codes).reshape(2, codes)
    other = Coding(known.first.repeat(2)[::2], known.edges.repeat(2)[::2], known.stride)
    [found] = tables.descend([0], [asked(chances=chances, kinds=[1], least=least)])
    for changed in (
        {"chances": np.asfortranarray(chances)},
        {"chances": chances.repeat(2, axis=1)[:, ::2]},
        {"chances": chances, "coding": other},
    ):
        assert tables.descend([0], [asked(kinds=[1], least=least, **changed)]) == [found]
    assert found is not None
    assert found.tokens


def test_a_chance_that_is_no_number_keeps_nothing_below_the_root() -> None:
    chances = np.full((1, SOURCES[TABLE].codes), np.nan)
    [found] = taught(2).descend([0], [asked(chances=chances)])
    assert found is not None
    assert set(found.parents) == {0}


def test_a_description_needs_all_ranks() -> None:
    query = Describe("adjacency", TreeBuilder(1), [0], 3, coding(SOURCES[TABLE], 2))
    with pytest.raises(ValueError, match="too short for 3"):
        taught(1).describe([0], [query])


def test_a_descent_ends_even_if_every_level_is_to_be_asked_about() -> None:
    [found] = taught(2).descend([0], [asked(least=0.0, deepest=3)])
    assert found is not None
    builder = TreeBuilder(1)
    builder.extend(found.parents, found.tokens, "adjacency")
    assert max(builder.depths) <= 3


def test_rows_that_do_not_fit_are_refused() -> None:
    table = LiveTable(9, 2, 0.01, bigram=True)
    for before, tokens, best, probs in (
        ([1], [2, 3], (1, 2), (1, 2)),
        ([1], [2], (2, 2), (2, 2)),
        ([1], [2], (1, 2), (1, 1)),
    ):
        table.harvest(before, tokens, np.zeros(best, np.int64), np.ones(probs, np.float32))
        with pytest.raises(ValueError, match=r"have successors|inhomogeneous"):
            table.find([1], [2])
