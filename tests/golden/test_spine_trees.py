"""Spine trees against a literal, slow Algorithm 1, and malformed files of such trees."""

import json
import random
from collections import deque
from dataclasses import dataclass, field
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


@dataclass
class Node:
    """A node of the slow twin; it knows its children and its place in the order of attachment."""

    token: int
    parent: "Node | None" = None
    kind: int = 0
    number: int = 0
    children: list["Node"] = field(default_factory=list)


class Literal:
    """GOOSE, Algorithm 1, one node at a time."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.params = case["params"]
        self.nodes = [Node(case["anchor"])]
        self.leaves: deque[tuple[Node, int, float]] = deque()

    def add(self, parent: Node, token: int, kind: int) -> Node:
        node = Node(token, parent, kind, len(self.nodes))
        parent.children.append(node)
        self.nodes.append(node)
        return node

    def successors(self, node: Node) -> list[tuple[int, float]]:
        before = self.case["prev"] if node.parent is None else node.parent.token
        row = self.case["tables"]["bigram"].get(f"{before},{node.token}")
        if row is None:
            row = self.case["tables"]["unigram"].get(str(node.token), [])
        likely = [(t, s) for t, s in row if s >= self.params["min_score"]]
        return likely[: self.params["K"]]

    def attach(self, parent: Node, most: int, below: int) -> None:
        group: list[tuple[Node, float]] = []
        for token, score in self.successors(parent):
            if len(group) == most or len(self.nodes) == self.params["B"]:
                break
            if all(child.token != token for child in parent.children):
                group.append((self.add(parent, token, 2), score))
        for node, score in group:
            self.leaves.append((node, below, score / group[0][1]))

    def build(self) -> tuple[list[int], list[int], list[int]]:
        b, r, rho = self.params["B"], self.params["r"], self.params["rho"]
        chain = self.case["chain"]
        spine_size = min(len(chain), int(b * r), b - 1)  # "at most B nodes": it matters at r = 1
        root_size = int((b - 1 - spine_size) * (1 - rho))
        left = b - 1 - spine_size - root_size
        spine = [self.nodes[0]]
        for token in chain[:spine_size]:
            spine.append(self.add(spine[-1], token, 1))
        self.attach(spine[0], root_size, 1)
        weights = [1 / (i + 1) for i in range(spine_size)]
        for node, weight in zip(spine[1:], weights, strict=True):
            self.attach(node, int(left * weight / sum(weights)), 1)
        while self.leaves:
            leaf, below, relative = self.leaves.popleft()
            if below < self.params["D"]:
                width = max(1, int(self.params["K"] * relative + 0.5))
                self.attach(leaf, width, below + 1)
        return (
            [node.token for node in self.nodes],
            [-1 if node.parent is None else node.parent.number for node in self.nodes],
            [node.kind for node in self.nodes],
        )


def solved(case: Case) -> Case:
    tokens, parents, kinds = Literal(case).build()
    return case | {"tokens": tokens, "parents": parents, "kinds": kinds}


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
    good = random_case(3) | {"params": {"B": 60, "r": 0.3, "rho": 0.5, "D": 6, "K": 10}}
    good["params"]["min_score"] = 0.01
    good = solved(good)
    wrong = json.loads(json.dumps(good))
    wrong["tokens"][7] += 1
    wrong["kinds"][5] += 1
    short = json.loads(json.dumps(good))
    for name in ("tokens", "parents", "kinds"):
        short[name].pop()
    right, first, second = check_file(write(tmp_path / "g.json", good, wrong, short))
    assert not right.complaints
    assert str(first).startswith("case 1: tokens and kinds differ from node 5 on")
    assert str(second).startswith("case 2: tokens and parents and kinds differ")
    assert f"({len(short['tokens'])} nodes expected, {len(good['tokens'])} rebuilt)" in str(second)


def broken(path: str, value: object) -> Case:
    case = json.loads(json.dumps(random_case(5)))
    *outer, last = path.split(".")
    inner = case
    for name in outer:
        inner = inner[name]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return dict(case)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("prev", None),
        ("anchor", "7"),
        ("chain", [1, "2"]),
        ("chain", [1.5]),
        ("tables", []),
        ("tables.unigram", None),
        ("tables.bigram", {"1,2": [[3]]}),
        ("tables.bigram", {"1,2": [[3, "x"]]}),
        ("tables.bigram", {"1,2": 5}),
        ("tables.unigram", {"1": [[3, -0.1]]}),
        ("tables.unigram", {"1": [[-3, 0.5]]}),
        ("params.B", 0),
        ("params.B", True),
        ("params.K", 2.5),
        ("params.rho", 1.5),
        ("params.min_score", None),
        ("tokens", None),
        ("parents", {}),
        ("kinds", "0"),
    ],
)
def test_malformed_cases_are_refused(tmp_path: Path, path: str, value: object) -> None:
    with pytest.raises(DraftwoodError, match=r"cases\[1\]"):
        check_file(write(tmp_path / "g.json", random_case(5), broken(path, value)))
