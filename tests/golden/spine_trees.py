"""Rebuilds worked spine trees (GOOSE, Algorithm 1) and compares them with the file's.

Keys of a case: ``prev`` (the token before the anchor), ``anchor``, ``chain``, ``tables``
(``unigram``: key ``"token"``; ``bigram``: key ``"previous,token"``; rows of ``[token, score]``,
best first), ``params`` (GOOSE's ``B``, root included, ``r``, ``rho``, ``D``, ``K``,
``min_score``), and the expected ``tokens``, ``parents`` and ``kinds`` (0 root, 1 spine, 2 branch)
in order of attachment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from draftwood.errors import DraftwoodError
from draftwood.files import Count, Range, decode
from draftwood.policies._spine import SpineShape
from draftwood.policies.spine import Successors, attach_branches
from draftwood.tree import ROOT_SOURCE, TreeBuilder
from tests.golden.cases import File
from tests.golden.entries import Check

KINDS = {ROOT_SOURCE: 0, "spine": 1, "branch": 2}

Row = tuple[tuple[Count, Annotated[float, Range(0)]], ...]
Positive = Annotated[int, Range(1)]
Share = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class TablesRecord:
    """Rows of a case, as in the file."""

    unigram: Mapping[str, Row]
    bigram: Mapping[str, Row]


@dataclass(frozen=True)
class ParamsRecord:
    """GOOSE's parameters, as in the file."""

    B: Positive
    D: Positive
    K: Positive
    r: Share
    rho: Share
    min_score: Share


@dataclass(frozen=True)
class CaseRecord:
    """A case, as in the file."""

    prev: int
    anchor: int
    chain: tuple[int, ...]
    tables: TablesRecord
    params: ParamsRecord
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    kinds: tuple[int, ...]


@dataclass(frozen=True)
class SpineCase:
    """One worked tree."""

    before: int
    anchor: int
    chain: tuple[int, ...]
    unigram: Mapping[str, Row]
    bigram: Mapping[str, Row]
    shape: SpineShape
    expected: Mapping[str, tuple[int, ...]]

    def rebuild(self) -> TreeBuilder:
        """The tree that Algorithm 1 builds from the case's tables."""
        builder = TreeBuilder(self.anchor)
        builder.add_chain(self.chain[: self.shape.spine_length(len(self.chain))], "spine")
        growing = attach_branches(builder, self.shape, "branch")
        nodes = next(growing, None)
        while nodes is not None:
            try:
                nodes = growing.send(self._successors(builder, nodes))
            except StopIteration:
                break
        return builder

    def _successors(self, builder: TreeBuilder, nodes: list[int]) -> Successors:
        rows = []
        for node in nodes:
            token, parent = builder.tokens[node], builder.parents[node]
            before = self.before if parent < 0 else builder.tokens[parent]
            row = self.bigram.get(f"{before},{token}", self.unigram.get(str(token), ()))
            rows.append(row[: self.shape.top_k])
        return [[t for t, _ in row] for row in rows], [[s for _, s in row] for row in rows]


def check_spine_trees(file: File) -> list[Check]:
    """Rebuild every case and compare tokens, parents and kinds.

    Raises:
        DraftwoodError: a case does not have the keys above.
    """
    cases = [_read(raw, f"cases[{i}]") for i, raw in enumerate(file.cases)]
    if not cases:
        raise DraftwoodError("cases: expected a list of spine trees")
    return [_check(f"case {i}", case) for i, case in enumerate(cases)]


def _check(name: str, case: SpineCase) -> Check:
    builder = case.rebuild()
    rebuilt = {
        "tokens": builder.tokens,
        "parents": builder.parents,
        "kinds": [KINDS[source] for source in builder.sources],
    }
    first = {key: _first_difference(case.expected[key], rebuilt[key]) for key in rebuilt}
    differing = {key: node for key, node in first.items() if node is not None}
    expected = len(case.expected["tokens"])
    complaint = (
        f"{' and '.join(differing)} differ from node {min(differing.values(), default=0)} on "
        f"({expected} nodes expected, {len(builder)} rebuilt)"
    )
    return Check(name, 3 * expected, (complaint,) if differing else ())


def _first_difference(expected: Sequence[int], rebuilt: Sequence[int]) -> int | None:
    for i, (a, b) in enumerate(zip(expected, rebuilt, strict=False)):
        if a != b:
            return i
    return None if len(expected) == len(rebuilt) else min(len(expected), len(rebuilt))


def _read(raw: object, place: str) -> SpineCase:
    found = decode(CaseRecord, raw, place)
    params = found.params
    return SpineCase(
        found.prev,
        found.anchor,
        found.chain,
        found.tables.unigram,
        found.tables.bigram,
        SpineShape(
            size=params.B,
            ratio=params.r,
            rho=params.rho,
            max_depth=params.D,
            top_k=params.K,
            room=params.B,  # no tree of this size is deeper
            min_score=params.min_score,
        ),
        {"tokens": found.tokens, "parents": found.parents, "kinds": found.kinds},
    )
