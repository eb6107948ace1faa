"""The prepared adjacency table: looked up exactly, averaged with what a request teaches."""

import math
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftwood.drafters.adjacency.drafter import Adjacency, AdjacencyTables
from draftwood.drafters.adjacency.mean import mean
from draftwood.drafters.adjacency.table import UNKNOWN, PreparedTable
from draftwood.protocols import Candidates, Expand, Outcome, Prefill, TargetInfo, TargetOutput
from draftwood.tree import TreeBuilder
from tests.factories.markov_target import FakeHost
from tests.factories.prepared_tables import ANY, prepared_table, random_rows, save_table

V, K = 9, 4
HOST = FakeHost(TargetInfo(V, 64, 1, 8, torch.device("cpu"), torch.float32))

Row = Mapping[int, float]


@given(st.integers(0, 2**32 - 1), st.sampled_from([V, 300, 70_000]))
def test_lookups_equal_a_dictionary(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, size, pairs=int(rng.integers(1, 30)), width=K)
    table = prepared_table(rows, size, K)
    asked = [*rows, *((int(a), int(b)) for a, b in rng.integers(ANY, size, (20, 2)) if b >= 0)]
    before, tokens = [b for b, _ in asked], [t for _, t in asked]
    pairs, singles = table.find(before, tokens)
    for i, (b, t) in enumerate(asked):
        assert (pairs[i] != UNKNOWN) == ((b, t) in rows)
        assert (singles[i] != UNKNOWN) == ((ANY, t) in rows)
    for width in (1, K, K + 2):
        found, logq = table.successors(pairs, width)
        for i, pair in enumerate(asked):
            row = list(rows.get(pair, {}).items())[:width]
            assert found[i].tolist() == [t for t, _ in row] + [-1] * (width - len(row))
            assert (logq[i, len(row) :] == -np.inf).all()
            # A code stands for a probability that is at most 1/64 of a unit of its logarithm off.
            assert np.abs(logq[i, : len(row)] - np.log([p for _, p in row])).max(initial=0) < 0.0157


@given(st.integers(0, 2**32 - 1))
def test_means_equal_a_dictionary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_rows: list[list[Row]] = []
    arrays = []
    for _ in range(2):
        rows: list[Row] = []
        tokens = np.full((5, K), -1, dtype=np.int32)
        logq = np.full((5, K), -np.inf, dtype=np.float32)
        for i in range(5):
            count = int(rng.integers(K + 1))
            tokens[i, :count] = rng.choice(V, count, replace=False)
            probs = np.sort(rng.dirichlet([0.5] * max(1, count)))[::-1][:count] + 1e-3
            logq[i, :count] = np.log(probs)
            rows.append(
                dict(zip(tokens[i, :count].tolist(), np.exp(logq[i]).tolist(), strict=False))
            )
        given_rows.append(rows)
        arrays.append((tokens, logq))
    tokens, logq = mean(arrays[0], arrays[1])
    for i, (a, b) in enumerate(zip(*given_rows, strict=True)):
        w = 0.5 if a and b else 1.0 if a else 0.0
        every = {t: w * a.get(t, 0.0) + (1 - w) * b.get(t, 0.0) for t in {**a, **b}}
        best = sorted(every.values(), reverse=True)[:K]
        count = len(best)
        np.testing.assert_allclose(np.exp(logq[i, :count]), best, rtol=1e-4)
        for token, p in zip(tokens[i, :count].tolist(), np.exp(logq[i]).tolist(), strict=False):
            assert every[token] == pytest.approx(p, rel=1e-4)
        assert len({*tokens[i, :count].tolist()}) == count
        assert (tokens[i, count:] == -1).all()
        assert (logq[i, count:] == -np.inf).all()


def rows_with(*rows: Row) -> TargetOutput:
    """Rows of ``K`` successors; those that are not given have probability 0."""
    full = [{**row, **{t: 0.0 for t in range(V) if t not in row}} for row in rows]
    tokens = np.array([list(row)[:K] for row in full], dtype=np.int64)
    probs = np.array([list(row.values())[:K] for row in full], dtype=np.float32)
    return TargetOutput(torch.zeros(1, 1), tokens[:, 0].copy(), tokens, probs)


def drafter(path: Path, table: PreparedTable, **settings: object) -> AdjacencyTables:
    name = save_table(path / "table.safetensors", table)
    return Adjacency(width=K, table=name, **settings).build(HOST)  # type: ignore[arg-type]


def begun(tables: AdjacencyTables, prompt: list[int], *rows: Row) -> AdjacencyTables:
    tables.begin(0, Prefill(np.array(prompt, dtype=np.int64), 0, rows_with(*rows)))
    return tables


def found_after(tables: AdjacencyTables, *path: int) -> dict[int, float]:
    builder = TreeBuilder(path[0])
    node = builder.add_chain(path[1:], "adjacency")
    answered = tables.expand([0], [Expand("adjacency", builder, [node], K)])[0]
    pairs = zip(answered.tokens[0].tolist(), answered.logq[0].tolist(), strict=True)
    return {t: round(math.exp(q), 2) for t, q in pairs if t >= 0}


TABLE = prepared_table(
    {(1, 2): {3: 0.5, 4: 0.25}, (ANY, 2): {5: 0.5}, (ANY, 6): {7: 0.5, 8: 0.02}}, V, K
)


def test_a_table_answers_in_the_first_step(tmp_path: Path) -> None:
    cold = begun(Adjacency(width=K).build(HOST), [0, 0], {0: 0.9}, {0: 0.9})
    assert found_after(cold, 1, 2) == found_after(cold, 0, 6) == {}
    tables = begun(drafter(tmp_path, TABLE), [0, 0], {0: 0.9}, {0: 0.9})
    assert found_after(tables, 1, 2) == {3: 0.5, 4: 0.25}
    assert found_after(tables, 0, 2) == {5: 0.5}
    assert found_after(tables, 2) == {5: 0.5}
    assert found_after(tables, 0, 6) == {7: 0.5, 8: 0.02}
    assert found_after(tables, 0, 3) == {}


def test_successors_below_min_score_are_not_offered(tmp_path: Path) -> None:
    tables = begun(drafter(tmp_path, TABLE, min_score=0.1), [0, 0], {0: 0.9}, {0: 0.9})
    assert found_after(tables, 0, 6) == {7: 0.5}


def test_the_live_row_of_a_pair_wins(tmp_path: Path) -> None:
    tables = begun(drafter(tmp_path, TABLE), [1, 2, 0], {0: 0.9}, {8: 0.8, 3: 0.1}, {0: 0.9})
    assert found_after(tables, 1, 2) == {8: 0.8, 3: 0.1}
    # The pair (4, 2) is new to both: the row of 2 that was stored last, and the table's of 2.
    assert found_after(tables, 4, 2) == {8: 0.4, 5: 0.25, 3: 0.05}


def test_a_new_pair_is_the_mean_of_the_table_and_the_token_s_last_row(tmp_path: Path) -> None:
    tables = begun(drafter(tmp_path, TABLE), [4, 2, 0], {0: 0.9}, {8: 0.8, 3: 0.1}, {0: 0.9})
    half = {8: 0.4, 3: 0.05 + 0.25, 4: 0.125}
    assert found_after(tables, 1, 2) == {t: pytest.approx(p, abs=0.01) for t, p in half.items()}


def test_without_live_pairs_every_token_uses_the_table(tmp_path: Path) -> None:
    tables = begun(drafter(tmp_path, TABLE, bigram=False), [0, 6], {0: 0.9}, {1: 0.9})
    assert found_after(tables, 1, 2) == {3: 0.5, 4: 0.25}
    assert found_after(tables, 0, 2) == {5: 0.5}
    assert found_after(tables, 6) == {1: 0.45, 7: 0.25, 8: 0.01}


def alike(one: Candidates, other: Candidates) -> bool:
    pairs = ((one.tokens, other.tokens), (one.logq, other.logq))
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("bigram", [True, False])
@given(seed=st.integers(0, 2**32 - 1))
def test_queries_of_many_requests_are_answered_as_each_alone(
    tmp_path_factory: pytest.TempPathFactory, bigram: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tables = drafter(tmp_path_factory.mktemp("table"), TABLE, bigram=bigram)
    slots = range(int(rng.integers(1, 6)))
    queries = []
    for slot in slots:
        prompt = rng.integers(V, size=int(rng.integers(1, 9)))
        rows = [{int(t): 0.5 for t in rng.choice(V, 2, replace=False)} for _ in prompt]
        tables.begin(slot, Prefill(prompt, 0, rows_with(*rows)))
        builder = TreeBuilder(int(rng.integers(V)))
        builder.add_chain(rng.integers(V, size=3).tolist(), "adjacency")
        nodes = rng.permutation(4)[: int(rng.integers(1, 5))].tolist()
        banned = [frozenset(rng.integers(V, size=2).tolist()) for _ in nodes]
        exclude = banned if rng.integers(2) else ()
        k = int(rng.integers(1, K + 3))
        queries.append(Expand("adjacency", builder, nodes, k, exclude=exclude))
    together = tables.expand([*slots], queries)
    for slot, query, found in zip(slots, queries, together, strict=True):
        assert found.tokens.shape == (len(query.nodes), query.k)
        assert alike(found, tables.expand([slot], [query])[0])
    # They are the requests' own, so that slots in another order have other answers.
    others = tables.expand([*reversed(slots)], queries)
    swapped = [tables.expand([s], [q])[0] for s, q in zip(reversed(slots), queries, strict=True)]
    assert all(map(alike, others, swapped))


def test_learning_never_changes_the_table(tmp_path: Path) -> None:
    first = begun(drafter(tmp_path, TABLE), [1, 2], {0: 0.9}, {8: 0.9})
    table = first._prepared
    assert table is not None
    before = [array.copy() for array in (table.keys, table.lengths, table.tokens, table.codes)]
    tree = TreeBuilder(1)
    tree.add_chain([2, 6], "adjacency")
    rows = rows_with({0: 0.9}, {1: 0.9}, {2: 0.9})
    first.observe(0, Outcome(tree.build(), (1, 2), (2, 6, 2), rows))
    now = (table.keys, table.lengths, table.tokens, table.codes)
    assert all((a == b).all() for a, b in zip(before, now, strict=True))
    # Another engine's drafter shares the arrays.
    second = Adjacency(width=K, table=str(tmp_path / "table.safetensors")).build(HOST)
    assert second._prepared is table
    assert found_after(begun(second, [0, 0], {0: 0.9}, {0: 0.9}), 1, 2) == {3: 0.5, 4: 0.25}


def test_settings_with_a_table_can_be_pickled(tmp_path: Path) -> None:
    spec = Adjacency(table=save_table(tmp_path / "t.safetensors", TABLE))
    assert pickle.loads(pickle.dumps(spec)) == spec
