"""The adjacency table: equal to two plain dictionaries, bounded, and nothing harvested is lost."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftwood.drafters.adjacency import live
from draftwood.drafters.adjacency.drafter import Adjacency, AdjacencyTables
from draftwood.errors import DraftwoodError
from draftwood.protocols import Expand, Needs, Outcome, Prefill, TargetInfo, TargetOutput
from draftwood.tree import Draw, TreeBuilder
from tests.factories.markov_target import FakeHost
from tests.factories.traced_memory import bytes_allocated

V, K = 7, 3
TARGET = TargetInfo(V, 64, 1, 8, torch.device("cpu"), torch.float32)
HOST = FakeHost(TARGET)

Row = list[tuple[int, float]]


def rows_of(rng: np.random.Generator, n: int, k: int = K) -> TargetOutput:
    probs = rng.dirichlet([0.3] * V, n).astype(np.float32)
    order = np.argsort(-probs, axis=1, kind="stable")[:, :k].astype(np.int64)
    return TargetOutput(
        torch.zeros(1, 1), order[:, 0].copy(), order, np.take_along_axis(probs, order, axis=1)
    )


def rows_with(*rows: Row) -> TargetOutput:
    tokens = np.array([[token for token, _ in row] for row in rows], dtype=np.int64)
    probs = np.array([[prob for _, prob in row] for row in rows], dtype=np.float32)
    return TargetOutput(torch.zeros(1, 1), tokens[:, 0].copy(), tokens, probs)


def grown(rng: np.random.Generator, anchor: int, n: int) -> TreeBuilder:
    builder = TreeBuilder(anchor)
    for _ in range(n):
        builder.add(int(rng.integers(len(builder))), int(rng.integers(V)), "adjacency")
    return builder


class Twin:
    """The paper's two tiers as two dictionaries, filled row by row."""

    def __init__(self, settings: Adjacency) -> None:
        self.settings = settings
        self.pairs: dict[tuple[int, int], Row] = {}
        self.singles: dict[int, Row] = {}
        self.before = -1

    def learn(self, before: int, token: int, rows: TargetOutput, i: int) -> None:
        row = [
            (int(t), math.log(p))
            for t, p in zip(rows.top_tokens[i, :K], rows.top_probs[i, :K].tolist(), strict=True)
            if p >= self.settings.min_score and p > 0
        ]
        self.pairs[before, token] = row
        self.singles[token] = row

    def begin(self, prefill: Prefill) -> None:
        prompt = prefill.prompt.tolist()
        for i, token in enumerate(prompt):
            self.learn(prompt[i - 1] if i else -1, token, prefill.rows, i)
        self.before = prompt[-1]

    def observe(self, outcome: Outcome) -> None:
        tree = outcome.tree
        for node in range(len(tree)):
            if self.settings.harvest == "all" or node in (0, *outcome.path):
                parent = int(tree.parents[node])
                before = self.before if node == 0 else int(tree.tokens[parent])
                self.learn(before, int(tree.tokens[node]), outcome.rows, node)
        self.before = [int(tree.tokens[0]), *outcome.committed][-2]

    def expand(self, query: Expand) -> list[Row]:
        answer = []
        for i, node in enumerate(query.nodes):
            tokens, parent = query.tree.tokens, query.tree.parents[node]
            before = self.before if parent < 0 else tokens[parent]
            row = self.pairs.get((before, tokens[node])) if self.settings.bigram else None
            if row is None:
                row = self.singles.get(tokens[node], [])
            banned = query.exclude[i] if query.exclude else frozenset()
            answer.append([pair for pair in row if pair[0] not in banned][: query.k])
        return answer


def listed(tokens: NDArray[np.int64], logq: NDArray[np.float32]) -> list[Row]:
    found = []
    for ids, scores in zip(tokens.tolist(), logq.tolist(), strict=True):
        end = ids.index(-1) if -1 in ids else len(ids)
        assert ids[end:] == [-1] * (len(ids) - end)
        assert scores[end:] == [-math.inf] * (len(ids) - end)
        found.append(list(zip(ids[:end], scores[:end], strict=True)))
    return found


@given(
    seed=st.integers(0, 2**32 - 1),
    bigram=st.booleans(),
    everything=st.booleans(),
    min_score=st.sampled_from([0.0, 0.01, 0.3]),
    steps=st.integers(0, 4),
)
def test_the_arrays_equal_two_dictionaries(
    seed: int, bigram: bool, everything: bool, min_score: float, steps: int
) -> None:
    rng = np.random.default_rng(seed)
    settings = Adjacency(
        width=K,
        min_score=min_score,
        bigram=bigram,
        harvest="all" if everything else "accepted",
    )
    tables, twin = settings.build(HOST), Twin(settings)
    prompt = rng.integers(V, size=int(rng.integers(1, 9)))
    # Rows may be wider than asked for, when another drafter needs more.
    prefill = Prefill(prompt, int(rng.integers(V)), rows_of(rng, len(prompt), k=K + 2))
    tables.begin(0, prefill)
    twin.begin(prefill)
    anchor = prefill.first
    for _ in range(steps + 1):
        builder = grown(rng, anchor, int(rng.integers(12)))
        nodes = [int(node) for node in rng.integers(len(builder), size=5)]
        exclude = [
            frozenset(int(t) for t in rng.integers(V, size=int(rng.integers(3)))) for _ in nodes
        ]
        for k in (1, K, K + 2):
            for banned in ([], exclude):
                query = Expand("adjacency", builder, nodes, k, exclude=banned)
                answer = tables.expand([0], [query])[0]
                assert answer.tokens.shape == answer.logq.shape == (5, k)
                assert answer.tokens.dtype == np.int64
                assert answer.logq.dtype == np.float32
                got, expected = listed(answer.tokens, answer.logq), twin.expand(query)
                assert [[t for t, _ in row] for row in got] == [
                    [t for t, _ in row] for row in expected
                ]
                np.testing.assert_allclose(
                    [s for row in got for _, s in row],
                    [s for row in expected for _, s in row],
                    rtol=1e-5,
                    atol=1e-6,
                )
        tree = builder.build()
        path = tree.path(int(rng.integers(len(tree))))
        committed = (*(int(tree.tokens[i]) for i in path), int(rng.integers(V)))
        outcome = Outcome(tree, path, committed, rows_of(rng, len(tree)))
        tables.observe(0, outcome)
        twin.observe(outcome)
        anchor = committed[-1]


def successors(tables: AdjacencyTables, *path: int, slot: int = 0) -> list[int]:
    builder = TreeBuilder(path[0])
    node = builder.add_chain(path[1:], "adjacency")
    answer = tables.expand([slot], [Expand("adjacency", builder, [node], K)])[0]
    return [token for token in answer.tokens[0].tolist() if token >= 0]


def begin(
    tables: AdjacencyTables,
    prompt: list[int],
    first: int,
    rows: TargetOutput,
    slot: int = 0,
    namespace: str = "",
) -> None:
    tables.begin(slot, Prefill(np.array(prompt, dtype=np.int64), first, rows, namespace))


def one(
    tree: TreeBuilder, path: tuple[int, ...], committed: tuple[int, ...], rows: TargetOutput
) -> Outcome:
    return Outcome(tree.build(), path, committed, rows)


def test_only_the_last_prompt_rows_may_be_there() -> None:
    tables = Adjacency(width=1).build(HOST)
    begin(tables, [1, 2, 3], 4, rows_with([(6, 0.9)]))
    assert successors(tables, 2, 3) == [6]
    assert successors(tables, 1, 2) == []


def test_the_oldest_pair_makes_room() -> None:
    settings = Adjacency(width=1, max_rows=2)
    tables = settings.build(HOST)
    begin(tables, [1, 2], 3, rows_with([(2, 0.9)], [(3, 0.9)]))
    assert successors(tables, 1, 2) == [3]
    # A new harvest of a known pair keeps its place in the queue, a new pair takes the oldest's.
    tables.observe(0, one(TreeBuilder(3), (), (5,), rows_with([(5, 0.9)])))
    assert successors(tables, 0, 1) == []
    assert successors(tables, 0, 2) == [3]
    tables.observe(0, one(TreeBuilder(5), (), (6,), rows_with([(6, 0.9)])))
    assert successors(tables, 0, 2) == []
    assert (successors(tables, 0, 3), successors(tables, 0, 5)) == ([5], [6])


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans())
def test_a_full_table_never_returns_another_keys_row(seed: int, rows: int, bigram: bool) -> None:
    rng = np.random.default_rng(seed)
    tables = Adjacency(width=1, max_rows=rows, bigram=bigram).build(HOST)
    prompt = [int(t) for t in rng.integers(V, size=30)]
    # Every successor spells the token it follows, so that a stale row would show.
    begin(tables, prompt, 0, rows_with(*([(t, 0.9)] for t in prompt)))
    known = 0
    for before in range(V):
        for token in range(V):
            found = successors(tables, before, token)
            assert found in ([], [token])
            known += bool(found)
    assert known > 0
    assert successors(tables, prompt[-2], prompt[-1]) == [prompt[-1]]


def test_memory_is_bounded_when_far_more_is_learnt() -> None:
    target = TargetInfo(50_000, 64, 1, 8, torch.device("cpu"), torch.float32)
    tables = Adjacency(width=2, max_rows=3000).build(FakeHost(target))
    prompt = list(range(1000, 10_000))
    rows = rows_with(*([(t, 0.9), (0, 0.05)] for t in prompt))
    held = bytes_allocated(live, lambda: begin(tables, prompt, 0, rows))
    # A row has two tokens and scores of 4 bytes; a key takes up to 352 bytes of dictionaries.
    assert 3000 * 16 < held <= 3001 * 16 + 3000 * 352 + 1024
    native = tables._tables[0].native
    if native is not None:  # a key takes up to 4 places of 12 bytes in each of two maps
        assert 3000 * 32 <= native.index_bytes <= 3000 * (2 * 4 * 12 + 2 * 8)


def test_tables_are_per_slot_unless_shared() -> None:
    rows = rows_with([(2, 0.9)])
    apart = Adjacency(width=1).build(HOST)
    begin(apart, [1], 2, rows, slot=0)
    begin(apart, [3], 2, rows, slot=1)
    assert (successors(apart, 1, slot=0), successors(apart, 1, slot=1)) == ([2], [])
    shared = Adjacency(width=1, shared=True).build(HOST)
    begin(shared, [1], 2, rows, slot=0)
    shared.release(0)
    begin(shared, [3], 2, rows, slot=1)
    assert (successors(shared, 1, slot=1), successors(shared, 3, slot=1)) == ([2], [2])


def test_a_shared_table_has_the_text_of_one_namespace() -> None:
    shared = Adjacency(width=1, shared=True).build(HOST)
    begin(shared, [1], 2, rows_with([(2, 0.9)]), slot=0, namespace="alice")
    begin(shared, [3], 2, rows_with([(4, 0.9)]), slot=1, namespace="bob")
    assert (successors(shared, 1, slot=0), successors(shared, 3, slot=0)) == ([2], [])
    assert (successors(shared, 1, slot=1), successors(shared, 3, slot=1)) == ([], [4])
    shared.release(0)
    begin(shared, [5], 2, rows_with([(6, 0.9)]), slot=0, namespace="alice")
    assert successors(shared, 1, slot=0) == [2]


def test_the_tables_of_eight_namespaces_are_kept() -> None:
    shared = Adjacency(width=1, shared=True).build(HOST)
    rows = rows_with([(2, 0.9)])
    for namespace in map(str, range(8)):
        begin(shared, [1], 2, rows, namespace=namespace)
    for namespace in ("0", "8"):  # the first is used again, and the second makes room
        begin(shared, [3], 2, rows, namespace=namespace)
    known = []
    for namespace in ("0", "2", "1"):
        begin(shared, [5], 2, rows, namespace=namespace)
        known.append(successors(shared, 1))
    assert known == [[2], [2], []]


def test_a_running_request_keeps_its_shared_table() -> None:
    shared = Adjacency(width=1, shared=True).build(HOST)
    begin(shared, [1], 2, rows_with([(2, 0.9)]), slot=9, namespace="long")
    for namespace in map(str, range(20)):
        begin(shared, [3], 2, rows_with([(4, 0.9)]), namespace=namespace)
    assert successors(shared, 1, slot=9) == [2]


def test_more_rows_than_memory_are_refused_before_a_request() -> None:
    with pytest.raises(DraftwoodError, match=r"max_rows is .*at most 268435456"):
        Adjacency(max_rows=10**23)


def test_it_needs_prompt_rows_and_copies_nothing() -> None:
    tables = Adjacency().build(HOST)
    assert tables.needs == Needs(top_k=V, prompt_rows=True)  # a vocabulary of 7 has no 10 best
    assert tables.continuations([0, 4]) == [(), ()]
    assert Adjacency(prompt=False).build(HOST).needs == Needs(top_k=V)


def test_sampled_children_are_refused() -> None:
    tables = Adjacency().build(HOST)
    begin(tables, [1], 2, rows_of(np.random.default_rng(0), 1, k=V))
    query = Expand("adjacency", TreeBuilder(2), [0], 3, draw=Draw.WITHOUT_REPLACEMENT)
    with pytest.raises(DraftwoodError, match="one-hot"):
        tables.expand([0], [query])
