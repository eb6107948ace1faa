"""Spine trees against a literal, slow Algorithm 1, and malformed files of such trees."""

import copy
import json
import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.policies._spine import SpineState
from draftwood.policies.spine import Spine
from tests.factories.scripted_sources import Sources, offer
from tests.golden.forms import check_file

OWN = Path(__file__).parents[1] / "data" / "spine_trees.json"
Case = dict[str, Any]


def literal(case: Case) -> Case:
    """GOOSE, Algorithm 1, one node at a time; tokens, parents and kinds in order of attachment."""
    params, chain = case["params"], case["chain"]
    b, r, rho = params["B"], params["r"], params["rho"]
    tokens, parents, kinds = [case["anchor"]], [-1], [0]
    leaves: deque[tuple[int, int, float]] = deque()

    def add(parent: int, token: int, kind: int) -> int:
        tokens.append(token)
        parents.append(parent)
        kinds.append(kind)
        return len(tokens) - 1

    def successors(node: int) -> list[tuple[int, float]]:
        before = case["prev"] if node == 0 else tokens[parents[node]]
        row = case["tables"]["bigram"].get(f"{before},{tokens[node]}")
        if row is None:
            row = case["tables"]["unigram"].get(str(tokens[node]), [])
        return [(t, s) for t, s in row if s >= params["min_score"]][: params["K"]]

    def attach(parent: int, most: int, below: int) -> None:
        group: list[tuple[int, float]] = []
        for token, score in successors(parent):
            if len(group) == most or len(tokens) == b:
                break
            if (parent, token) not in zip(parents, tokens, strict=True):
                group.append((add(parent, token, 2), score))
        for node, score in group:
            leaves.append((node, below, score / group[0][1]))

    spine_size = min(len(chain), int(b * r), b - 1)  # "at most B nodes": it matters at r = 1
    root_size = int((b - 1 - spine_size) * (1 - rho))
    left = b - 1 - spine_size - root_size
    spine = [0]
    for token in chain[:spine_size]:
        spine.append(add(spine[-1], token, 1))
    attach(0, root_size, 1)
    weights = [1 / (i + 1) for i in range(spine_size)]
    for node, weight in zip(spine[1:], weights, strict=True):
        attach(node, int(left * weight / sum(weights)), 1)
    while leaves:
        leaf, below, relative = leaves.popleft()
        if below < params["D"]:
            attach(leaf, max(1, int(params["K"] * relative + 0.5)), below + 1)
    return {"tokens": tokens, "parents": parents, "kinds": kinds}


def solved(case: Case) -> Case:
    return case | literal(case)


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    vocab = rng.choice([6, 12, 40])

    def row() -> list[list[float]]:
        # Scores on a coarse grid, so that relative widths often lie exactly between two integers.
        scores = sorted((rng.choice([0.004, 0.01, *range(1, 20)]) for _ in range(12)), reverse=True)
        tokens = rng.sample(range(vocab), min(vocab, rng.randint(0, 12)))
        return [[t, s / 40 if s >= 1 else s] for t, s in zip(tokens, scores, strict=False)]

    pairs = [(rng.randrange(vocab), rng.randrange(vocab)) for _ in range(2 * vocab)]
    return solved(
        {
            "prev": rng.randrange(vocab),
            "anchor": rng.randrange(vocab),
            "chain": [rng.randrange(vocab) for _ in range(rng.choice([0, 1, 4, 8, 20]))],
            "tables": {
                "unigram": {str(t): row() for t in range(vocab) if rng.random() < 0.8},
                "bigram": {f"{a},{b}": row() for a, b in pairs},
            },
            "params": {
                "B": rng.choice([1, 2, 7, 16, 60, 61]),
                "r": rng.choice([0.0, 0.15, 0.3, 0.5, 1.0]),
                "rho": rng.choice([0.0, 0.3, 0.5, 1.0]),
                "D": rng.choice([1, 2, 6]),
                "K": rng.choice([1, 4, 10]),
                "min_score": 0.01,
            },
        }
    )


def write(path: Path, *cases: Case) -> Path:
    path.write_text(json.dumps({"cases": cases}), encoding="utf-8")
    return path


def test_the_stored_cases_equal_the_literal_algorithm() -> None:
    cases = json.loads(OWN.read_text(encoding="utf-8"))["cases"]
    assert len(cases) == 8
    assert all(solved(case) == case for case in cases)


def test_the_stored_cases_are_rebuilt() -> None:
    checks = check_file(OWN)
    assert [check.complaints for check in checks] == [()] * 8


@given(st.integers(0, 10**9))
def test_random_cases_are_rebuilt(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = write(tmp_path_factory.getbasetemp() / "random.json", random_case(seed))
    (check,) = check_file(path)
    assert not check.complaints


@given(st.integers(0, 10**9), st.sampled_from([0.1, 0.3, 0.9]))
def test_the_policy_grows_the_same_trees(seed: int, p_s: float) -> None:
    # By unigrams: a canned source looks up the last token only. Its scores pass through float32
    # logarithms, so relative widths are kept off the exact halves here.
    case = random_case(seed)
    rng = random.Random(seed)
    case["tables"]["bigram"] = {}
    for token, row in case["tables"]["unigram"].items():
        scores = sorted((rng.uniform(0.011, 1) for _ in row), reverse=True)
        case["tables"]["unigram"][token] = [[t, s] for (t, _), s in zip(row, scores, strict=True)]
    case["params"]["r"] = {0.1: 0.15, 0.3: 0.3, 0.9: 0.5}[p_s]
    case = solved(case)
    params = case["params"]
    policy = Spine(
        budget=params["B"] - 1,
        max_depth=params["D"],
        rho=params["rho"],
        top_k=params["K"],
        bypass="off",
    )
    table = {int(t): [(a, s) for a, s in row] for t, row in case["tables"]["unigram"].items()}
    tree = Sources(offer(*case["chain"]) if case["chain"] else (), table).grow(
        policy, anchor=case["anchor"], state=SpineState(p_s)
    )
    if tree.route == "chain":  # kept whole; Algorithm 1 would cut it
        assert 2 not in case["kinds"]
        return
    assert tree.tokens.tolist() == case["tokens"]
    assert tree.parents.tolist() == case["parents"]


def test_differences_are_named(tmp_path: Path) -> None:
    good = random_case(3)
    good["params"] |= {"B": 60, "r": 0.3, "rho": 0.5, "D": 6, "K": 10}
    good = solved(good)
    wrong, short = copy.deepcopy(good), copy.deepcopy(good)
    wrong["kinds"][5] += 1
    last = short["parents"].pop()
    right, first, second = check_file(write(tmp_path / "g.json", good, wrong, short))
    assert not right.complaints
    kind = good["kinds"][5]
    assert str(first).startswith(f"case 1: kind of node 5 is {kind}, the file has {kind + 1}")
    expected = f"parent of node {len(good['parents']) - 1} is {last}, the file has -2"
    assert second.complaints[0].startswith(expected)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"anchor": "7"}, "anchor: expected an integer"),
        ({"tables": {"unigram": {}, "bigram": {"1,2": [[3]]}}}, "tables.bigram.1,2"),
        ({"tables": {"unigram": {"1": [[3, -0.1]]}, "bigram": {}}}, "tables.unigram.1"),
        ({"params": {}}, "params.B is missing"),
    ],
)
def test_malformed_cases_are_refused(tmp_path: Path, change: Case, place: str) -> None:
    path = write(tmp_path / "g.json", random_case(5), random_case(5) | change)
    with pytest.raises(DraftwoodError, match=rf"g.json: cases\[1\].{place}"):
        check_file(path)
