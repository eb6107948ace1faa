"""Rebuilds worked spine trees (GOOSE, Algorithm 1) and compares them with the file's.

Keys of a case: ``prev`` (the token before the anchor), ``anchor``, ``chain``, ``tables``
(``unigram``: key ``"token"``; ``bigram``: key ``"previous,token"``; rows of ``[token, score]``,
best first), ``params`` (GOOSE's ``B``, root included, ``r``, ``rho``, ``D``, ``K``,
``min_score``), and the expected ``tokens``, ``parents`` and ``kinds`` (0 root, 1 spine, 2 branch)
in order of attachment.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftwood.policies._spine import SpineShape
from draftwood.policies.spine import Successors, attach_branches
from draftwood.tree import ROOT_SOURCE, TreeBuilder
from tests.golden.entries import Check, Entry

KINDS = {ROOT_SOURCE: 0, "spine": 1, "branch": 2}

Row = tuple[tuple[int, float], ...]


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


def check_spine_trees(whole: Entry) -> list[Check]:
    """Rebuild every case and compare tokens, parents and kinds.

    Raises:
        DraftwoodError: a case does not have the keys above.
    """
    cases = [_read(entry) for entry in whole.entries("cases")]
    if not cases:
        raise whole.wrong("cases", "a list of spine trees")
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


def _read(entry: Entry) -> SpineCase:
    tables, params = entry.entry("tables"), entry.entry("params")
    size, depth, top_k = (params.count(name) for name in ("B", "D", "K"))
    ratio, rho, least = (params.number(name) for name in ("r", "rho", "min_score"))
    if min(size, depth, top_k) < 1 or not all(0.0 <= share <= 1.0 for share in (ratio, rho, least)):
        raise entry.wrong("params", "B, D and K of at least 1, and r, rho and min_score in [0, 1]")
    return SpineCase(
        before=entry.integer("prev"),
        anchor=entry.integer("anchor"),
        chain=entry.integers("chain"),
        unigram=_table(tables, "unigram"),
        bigram=_table(tables, "bigram"),
        shape=SpineShape(
            size=size,
            ratio=ratio,
            rho=rho,
            max_depth=depth,
            top_k=top_k,
            room=size,  # no tree of this size is deeper
            min_score=least,
        ),
        expected={name: entry.integers(name) for name in ("tokens", "parents", "kinds")},
    )


def _table(entry: Entry, key: str) -> dict[str, Row]:
    form = "rows of [token, score] pairs, with tokens and finite scores of 0 or more"
    table = entry.of(key, dict, form)
    try:
        rows = {
            name: tuple((int(token), float(score)) for token, score in row)
            for name, row in table.items()
        }
    except (TypeError, ValueError) as error:
        raise entry.wrong(key, form) from error
    if any(t < 0 or not 0.0 <= score < math.inf for row in rows.values() for t, score in row):
        raise entry.wrong(key, form)
    return rows
