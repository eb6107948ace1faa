"""The candidates of a step, against a literal account of what was said and brute-force choices."""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftwood.policies.auto.features import (
    COPIED,
    NEURAL,
    NOT_ASKED,
    NOT_LISTED,
    TABLE,
    Codes,
    ranked_codes,
)
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.report import Report
from draftwood.protocols import NOTHING_PAYS, Price
from draftwood.tree import ROOT, TokenTree
from tests.factories.scripted_sources import paths
from tests.policies.auto.codes import by_place, copied_code
from tests.policies.auto.known_costs import BUCKETS, CODES

Path = tuple[int, ...]
Row = Sequence[tuple[int, float]]

EVERY = (COPIED, TABLE, NEURAL)
ALL = 10**6
"""More than there are."""


class Hashed:
    """A probability for every cell, drawn from some values."""

    def __init__(self, seed: int, values: Sequence[float] = ()) -> None:
        rng = np.random.default_rng(seed)
        self.table = rng.choice(values, BUCKETS) if values else rng.uniform(0.05, 1.0, BUCKETS)

    def probability(self, codes: Codes) -> float:
        return float(self.table[np.ravel_multi_index(codes, CODES)])


@dataclass
class Even:
    """Even probabilities; keeps the codes it was asked about."""

    codes: list[tuple[int, ...]] = field(default_factory=list)

    def probability(self, codes: Codes) -> float:
        self.codes.append(codes)
        return 0.5


def ranked(*rows: Row) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """An answer as arrays."""
    k = max(map(len, rows), default=0) or 1
    tokens = np.full((len(rows), k), -1, dtype=np.int64)
    logq = np.full((len(rows), k), -np.inf, dtype=np.float32)
    for i, row in enumerate(rows):
        for j, (token, score) in enumerate(row):
            tokens[i, j], logq[i, j] = token, math.log(score)
    return tokens, logq


def code(row: Row, token: int) -> int:
    """What a ranked row says of one of its tokens."""
    place = [t for t, _ in row].index(token)
    return int(ranked_codes(ranked(row)[1])[0, place])


@dataclass
class Account:
    """Who said what, by path: the codes that each node's cell must be made of."""

    said: dict[Path, dict[int, int]] = field(default_factory=dict)
    spoken: set[tuple[Path, int]] = field(default_factory=set)

    def copy(self, tokens: Path, match_length: int, preferred: bool) -> None:
        for i in range(len(tokens)):
            found = copied_code(match_length + i, preferred=preferred, first=i == 0)
            self.say(COPIED, tokens[:i], {tokens[i]: found})

    def say(self, source: int, above: Path, codes: dict[int, int]) -> None:
        if codes:
            self.spoken.add((above, source))
        for token, found in codes.items():
            self.said.setdefault((*above, token), {})[source] = found

    def codes(self, path: Path) -> Codes:
        silent = [
            NOT_LISTED if (path[:-1], source) in self.spoken else NOT_ASKED for source in EVERY
        ]
        copied, ranked, neural = (self.said[path].get(source, silent[source]) for source in EVERY)
        return copied, ranked, neural

    def path_probability(self, probabilities: Hashed, path: Path) -> float:
        return math.prod(
            probabilities.probability(self.codes(path[: i + 1])) for i in range(len(path))
        )


def cut(pool: Pool, price: float, most: int) -> TokenTree:
    """The tree of the likeliest candidates."""
    return pool.tree(pool.chosen(price, most), "auto")


def path_of(pool: Pool, node: int) -> Path:
    return () if node == ROOT else (*path_of(pool, pool.builder.parents[node]), token(pool, node))


def token(pool: Pool, node: int) -> int:
    return pool.builder.tokens[node]


def said(pool: Pool, committed: Path) -> list[tuple[int, ...]]:
    """Codes of all children of the nodes that these tokens pass."""
    return [*Report(pool, ALL).labelled(committed)[0]]


def known(pool: Pool) -> dict[Path, float]:
    """Path probabilities of all candidates."""
    return {path_of(pool, node): pool.path[node] for node in range(1, len(pool))}


def grown(
    seed: int,
    probabilities: Hashed,
    floor: float = 0.0,
    most: int = ALL,
    *,
    chain: bool = False,
) -> tuple[Pool, Account, list[list[int]]]:
    """A pool of random offers of all sources, what was said, and what each offer was answered."""
    rng = random.Random(seed)
    pool, account, fresh = Pool(99, probabilities, floor, most, chain=chain), Account(), []
    for place, first in enumerate(rng.sample(range(5), rng.randint(0, 2))):
        tokens = (first, *rng.choices(range(5), k=rng.randint(0, 3)))
        length = rng.randint(1, 40)
        pool.copy(tokens, by_place(length, preferred=place == 0), "copy")
        account.copy(tokens, length, place == 0)
    for _ in range(rng.randint(0, 4)):
        source = rng.choice([TABLE, NEURAL])
        open_ = [n for n in range(len(pool)) if (path_of(pool, n), source) not in account.spoken]
        nodes = rng.sample(open_, min(len(open_), rng.randint(1, 4)))
        rows = []
        for node in nodes:
            offered = rng.sample(range(5), rng.randint(0, 3))
            scores = sorted((rng.random() + 0.01 for _ in offered), reverse=True)
            rows.append(list(zip(offered, scores, strict=True)))
            account.say(source, path_of(pool, node), {t: code(rows[-1], t) for t in offered})
        fresh.append(pool.offer(source, str(source), nodes, *ranked(*rows)))
    return pool, account, fresh


# --- what is said of a candidate ------------------------------------------------------------------


@given(seed=st.integers(0, 10**6))
def test_every_candidate_is_one_node_with_the_codes_of_all_sources(seed: int) -> None:
    probabilities = Hashed(seed)
    pool, account, fresh = grown(seed, probabilities)
    found = known(pool)
    assert len(found) == len(pool) - 1 == pool.builder.drafted
    assert found.keys() == account.said.keys()
    for path, probability in found.items():
        assert probability == pytest.approx(account.path_probability(probabilities, path))
    # The new ones are those that nobody had offered before, in the order of the nodes.
    offered = [node for nodes in fresh for node in nodes]
    assert offered == list(range(len(pool) - len(offered), len(pool)))


def test_a_token_offered_twice_is_merged_and_others_hear_of_it() -> None:
    probabilities = Even()
    pool = Pool(99, probabilities, floor=0.0, most=ALL)
    pool.copy((1, 2), by_place(4), "context")
    copied = copied_code(4, preferred=True, first=True)
    second = copied_code(5, preferred=True, first=False)
    assert said(pool, (1, 2)) == [(copied, NOT_ASKED, NOT_ASKED), (second, NOT_ASKED, NOT_ASKED)]
    probabilities.codes.clear()
    row = [(3, 0.6), (1, 0.2)]
    assert pool.offer(TABLE, "adjacency", [ROOT], *ranked(row)) == [3]
    assert pool.builder.sources == ["root", "context", "context", "adjacency"]
    three = (NOT_LISTED, code(row, 3), NOT_ASKED)
    one = (copied, code(row, 1), NOT_ASKED)
    assert said(pool, (1, 2)) == [one, three, (second, NOT_ASKED, NOT_ASKED)]
    assert three in probabilities.codes
    probabilities.codes.clear()
    assert pool.offer(NEURAL, "draft", [ROOT], *ranked([(3, 0.9)])) == []
    one = (copied, code(row, 1), NOT_LISTED)
    three = (NOT_LISTED, code(row, 3), code([(3, 0.9)], 3))
    assert said(pool, (1, 2)) == [one, three, (second, NOT_ASKED, NOT_ASKED)]
    assert probabilities.codes[:2] == [one, three], "what was not spoken of is not estimated anew"


# --- floor and room -------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), floor=st.sampled_from([0.02, 0.2, 0.6]))
def test_the_floor_keeps_the_candidates_above_it_and_the_roots_children(
    seed: int, floor: float
) -> None:
    """Of one source alone, of which no estimate changes later."""
    rng = random.Random(seed)
    rows: dict[int, Row] = {}
    for above in (*range(5), 99):
        scores = sorted((rng.random() + 0.01 for _ in range(rng.randint(0, 4))), reverse=True)
        rows[above] = list(zip(rng.sample(range(5), len(scores)), scores, strict=True))
    found = []
    for least in (floor, 0.0):
        pool, nodes = Pool(99, Hashed(seed), least, ALL), [ROOT]
        for _ in range(3):
            answer = ranked(*(rows[token(pool, node)] for node in nodes))
            nodes = pool.offer(TABLE, "table", nodes, *answer)
        found.append(known(pool))
    kept, everything = found
    assert kept == {
        path: probability
        for path, probability in everything.items()
        if probability >= floor or len(path) == 1
    }


def test_the_first_token_of_a_copy_is_kept_below_the_floor() -> None:
    pool = Pool(99, Even(), floor=0.6, most=ALL)
    pool.copy((1, 2, 3), by_place(3), "context")
    assert known(pool) == {(1,): 0.5}
    assert pool.reached([1], deepest=9) == []


def test_a_copy_that_others_offer_too_is_estimated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, calls = Pool(99, Hashed(0), floor=0.0, most=ALL), list[list[int]]()
    estimate = Pool._estimate

    def counted(self: Pool, nodes: list[int]) -> None:
        if nodes:
            calls.append(nodes)
        estimate(self, nodes)

    monkeypatch.setattr(Pool, "_estimate", counted)
    pool.copy(range(1, 65), by_place(3), "context")
    pool.copy([*range(1, 61), 90, 91], lambda _: 5, "suffix", TABLE)
    assert len(calls) < 4, "each takes as long as the pool"
    for node in range(1, len(pool)):
        parent = pool.builder.parents[node]
        own = Hashed(0).probability(pool.codes[node])
        assert pool.path[node] == pytest.approx(pool.path[parent] * own)


def test_nothing_below_a_candidate_that_is_not_kept() -> None:
    pool = Pool(99, Even(), floor=0.2, most=ALL)
    pool.copy((1, 2, 3, 4), by_place(3), "context")
    assert list(known(pool).values()) == [0.5, 0.25]
    assert pool.offer(TABLE, "adjacency", [2], *ranked([(7, 0.9)])) == []
    assert pool.offer(TABLE, "adjacency", [1], *ranked([(7, 0.9)])) == [3]


def test_the_floor_itself_is_kept() -> None:
    pool = Pool(99, Even(), floor=0.25, most=ALL)
    pool.copy((1, 2, 3), by_place(3), "context")
    assert pool.offer(TABLE, "adjacency", [1], *ranked([(7, 0.9)])) == [3]
    assert list(known(pool)) == [(1,), (1, 2), (1, 7)]


@given(seed=st.integers(0, 10**6), most=st.integers(0, 6))
def test_never_more_than_most(seed: int, most: int) -> None:
    pool, _, _ = grown(seed, Hashed(seed), most=most)
    assert pool.builder.drafted == len(pool) - 1 <= most
    assert len(pool.path) == len(pool.builder) == len(pool)


def test_of_too_many_the_likeliest_are_kept() -> None:
    probabilities = Hashed(8)
    row = [(t, 0.5 / (t + 1)) for t in range(5)]
    rows = [row, [(t + 10, score) for t, score in row]]
    pools = []
    for most in (ALL, 4):
        pool = Pool(99, probabilities, floor=0.0, most=most)
        pool.copy((1,), by_place(3), "context")
        new = pool.offer(TABLE, "adjacency", [ROOT, 1], *ranked(*rows))
        assert new == list(range(2, len(pool)))
        pools.append(known(pool))
    everything, few = pools
    del everything[(1,)], few[(1,)]
    assert len(few) == 3
    assert sorted(few.values()) == sorted(everything.values())[-3:]
    assert list(few) == [path for path in everything if path in few], "in the order offered"


# --- what is taken --------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), most=st.integers(0, 4))
def test_a_chain_is_the_path_with_the_most_expected_tokens(seed: int, most: int) -> None:
    pool, _, _ = grown(seed, Hashed(seed))
    chain, _, _ = grown(seed, Hashed(seed), chain=True)
    assert known(chain) == known(pool)
    paths = [path_of(pool, node) for node in range(len(pool))]
    reach = known(pool)
    expected = {p: sum(reach[p[:n]] for n in range(1, len(p) + 1)) for p in paths if len(p) <= most}
    best = max(expected.values())
    values = chain.best(most)
    assert sum(values) == pytest.approx(best)
    assert values == sorted(values, reverse=True)
    for price in (0.0, *values, 2.0):
        chosen = chain.chosen(price, most)
        assert [chain.path[node] for node in chosen] == [v for v in values if v >= price]
        tree = chain.tree(chosen, "auto")
        assert tree.parents.tolist() == list(range(-1, len(chosen)))


def test_of_equal_chains_the_first_is_drafted() -> None:
    pool = Pool(99, Even(), floor=0.0, most=ALL, chain=True)
    pool.copy((1, 2), by_place(3), "context")
    pool.copy((3, 4), by_place(3, preferred=False), "context")
    assert pool.chosen(0.0, ALL) == [1, 2]


def choices(pool: Pool, most: int) -> list[float]:
    """Sums of the path probabilities of every set of at most ``most`` nodes that is a tree."""
    nodes = range(1, len(pool))
    parents = pool.builder.parents
    found = []
    for n in range(most + 1):
        for chosen in itertools.combinations(nodes, n):
            if all(parents[node] in {ROOT, *chosen} for node in chosen):
                found.append(sum(pool.path[node] for node in chosen))
    return found


TIES = (1.0, 0.5)


@examples(max_examples=60)
@given(
    seed=st.integers(0, 10**6), most=st.integers(0, 4), values=st.sampled_from([(), TIES, (1.0,)])
)
def test_the_likeliest_are_a_tree_and_no_other_tree_is_better(
    seed: int, most: int, values: Sequence[float]
) -> None:
    probabilities = Hashed(seed, values)
    pool, _, _ = grown(seed, probabilities, most=9)
    tree = cut(pool, 0.0, most)
    found = check_part(pool, tree)
    assert tree.drafted == min(most, len(pool) - 1)
    assert sum(found) == pytest.approx(max(choices(pool, most)))


@given(
    seed=st.integers(0, 10**6),
    price=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 1.0001, 2.0]),
    values=st.sampled_from([(), TIES]),
)
def test_the_price_is_the_lowest_path_probability_chosen(
    seed: int, price: float, values: Sequence[float]
) -> None:
    pool, _, _ = grown(seed, Hashed(seed, values))
    tree = cut(pool, price, ALL)
    check_part(pool, tree)
    expected = [path for path, probability in known(pool).items() if probability >= price]
    assert sorted(paths(tree)) == sorted(expected)
    if price > 1.0:
        assert not tree.drafted


@given(
    seed=st.integers(0, 10**6),
    discount=st.sampled_from([1.0, 0.7, 0.2]),
    most=st.integers(0, 9),
    chain=st.booleans(),
    weight=st.sampled_from([1.0, 0.3]),
)
def test_copied_candidates_have_a_discount(
    seed: int, discount: float, most: int, chain: bool, weight: float
) -> None:
    pool, account, _ = grown(seed, Hashed(seed), chain=chain)
    values, parents = pool.values(discount), pool.builder.parents
    for node in range(1, len(pool)):
        copied = COPIED in account.said[path_of(pool, node)]
        assert (node in pool.copied) == copied
        own = pool.path[node] * (discount if copied else 1.0)
        assert values[node] == min(own, values[parents[node]])
    best = pool.best(most, discount)
    assert best == sorted(best, reverse=True)
    assert best == pool.best(ALL, discount)[:most] or chain
    report = Report(pool, most, weight, discount=discount)
    assert report.values == [weight * value for value in best]
    for least in report.values:
        chosen = report.chosen(Price(least))
        assert sorted((values[node] for node in chosen), reverse=True) == [
            value for value in best if weight * value >= least
        ]
        assert {parents[node] for node in chosen} <= {ROOT, *chosen}


def check_part(pool: Pool, tree: TokenTree) -> list[float]:
    """Path probabilities of a tree's nodes; the pool has their tokens and sources."""
    probabilities = known(pool)
    sources = {path_of(pool, n): pool.builder.sources[n] for n in range(1, len(pool))}
    own = {
        path_of(pool, n): pool.path[n] / pool.path[pool.builder.parents[n]]
        for n in range(1, len(pool))
    }
    assert tree.tokens[0] == 99
    assert len(set(paths(tree))) == tree.drafted
    for node, path in enumerate(paths(tree), start=1):
        assert tree.sources[node] == sources[path]
        assert tree.logq[node] == pytest.approx(math.log(own[path]), rel=1e-5, abs=1e-6)
        assert tree.parents[node] < node
    assert (tree.route == "auto") == (tree.drafted > 0)
    assert tree.route in {"auto", "plain"}
    return [probabilities[path] for path in paths(tree)]


def test_a_certain_child_goes_with_its_parent() -> None:
    class Certain:
        def probability(self, codes: Codes) -> float:
            return 0.5 if codes[0] == copied_code(3, preferred=True, first=True) else 1.0

    pool = Pool(99, Certain(), floor=0.0, most=ALL)
    pool.copy((1, 2, 3), by_place(3), "context")
    assert pool.path == [1.0, 0.5, 0.5, 0.5]
    assert paths(cut(pool, 0.5, 2)) == [(1,), (1, 2)]
    assert paths(cut(pool, 0.5, 3)) == [(1,), (1, 2), (1, 2, 3)]
    assert paths(cut(pool, 0.51, 3)) == []


@given(seed=st.integers(0, 10**6))
def test_a_child_is_never_likelier_than_its_parent(seed: int) -> None:
    pool, _, _ = grown(seed, Hashed(seed, (1.0, 0.999999, 0.3, 1e-9)))
    for node in range(1, len(pool)):
        assert 0.0 < pool.path[node] <= pool.path[pool.builder.parents[node]] <= 1.0


# --- what a step shows ----------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), committed=st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_committed_tokens_label_candidates(seed: int, committed: list[int]) -> None:
    pool, account, _ = grown(seed, Hashed(seed))
    candidates = set(known(pool))
    # Where the tokens lead, as long as they are candidates; the last one's children stay unknown.
    shown = [
        (path, path[-1] == committed[len(path) - 1])
        for path in candidates
        if len(path) <= len(committed) and path[:-1] == tuple(committed[: len(path) - 1])
    ]
    codes, labelled = Report(pool, ALL).labelled(committed)
    expected = sorted((account.codes(path), hit) for path, hit in shown)
    assert sorted(zip(codes, labelled.taken, strict=True)) == expected
    # A probability is the candidate's own, not its path's.
    own = [Hashed(seed).probability(each) for each in codes]
    assert labelled.probabilities == pytest.approx(own)
    assert len(labelled.sources) == len(shown)


def test_candidates_are_labelled_whether_they_were_drafted_or_not() -> None:
    pool = Pool(99, Even(), floor=0.0, most=ALL)
    pool.copy((1, 2), by_place(3), "context")
    pool.offer(NEURAL, "draft", [ROOT], *ranked([(5, 0.5), (6, 0.2)]))
    report = Report(pool, ALL)
    assert not report.chosen(NOTHING_PAYS)

    def taken(*committed: int) -> list[bool]:
        return list(report.labelled(committed)[1].taken)

    assert taken(5) == [False, True, False]
    assert taken(1, 2, 9) == taken(1, 2) == [True, False, False, True]
    assert taken(9, 1) == [False, False, False]
    assert report.labelled((5,))[1].sources == ["context", "draft", "draft"]
    assert report.labelled((1, 2))[1].sources == ["context", "draft", "draft", "context"]


def test_the_headroom_of_a_node_is_what_its_children_leave() -> None:
    pool = Pool(99, Even(), floor=0.0, most=ALL)
    pool.copy((1, 2), by_place(3), "context")
    one, two = 1, 2
    assert [pool.headroom(node, 0.0) for node in (ROOT, one, two)] == [0.5, 0.25, 0.25]
    # Only children that pay are drafted.
    assert [pool.headroom(node, 0.3) for node in (ROOT, one, two)] == pytest.approx([0.5, 0.2, 0])
    assert pool.headroom(ROOT, 1.0) == 0.0
    pool.offer(TABLE, "adjacency", [one], *ranked([(6, 0.5), (7, 0.4), (8, 0.3)]))
    # Probabilities of siblings may add up to more than there is.
    assert pool.headroom(one, 0.0) == 0.0
    assert pool.headroom(ROOT, 0.0) == 0.5
