"""Rebuilds worked spine trees from a file and says where they differ.

The file is JSON: ``{"cases": [...]}``, each case with ``prev`` (the token before the anchor),
``anchor``, ``chain``, ``tables`` (``unigram``: key ``"token"``; ``bigram``: key
``"previous,token"``; rows of ``[token, score]``, best first), ``params`` (GOOSE's ``B``, root
included, ``r``, ``rho``, ``D``, ``K``, ``min_score``), and the expected ``tokens``, ``parents``
and ``kinds`` (0 root, 1 spine, 2 branch) in order of attachment. Nothing here knows a drafter.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.policies._spine import SpineShape
from draftwood.policies.spine import Successors, attach_branches
from draftwood.tree import ROOT_SOURCE, TreeBuilder

_KINDS = {ROOT_SOURCE: 0, "spine": 1, "branch": 2}

Row = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Mismatch:
    """A case whose tree came out differently.

    Attributes:
        case: number of the case, from 0.
        fields: which of ``tokens``, ``parents`` and ``kinds`` differ.
        node: first node at which one of them does.
        expected: nodes in the file's tree.
        rebuilt: nodes in the tree that was built.
    """

    case: int
    fields: tuple[str, ...]
    node: int
    expected: int
    rebuilt: int

    def __str__(self) -> str:
        return (
            f"case {self.case}: {' and '.join(self.fields)} differ from node {self.node} on"
            f" ({self.expected} nodes expected, {self.rebuilt} rebuilt)"
        )


@dataclass(frozen=True)
class GoldenReport:
    """How many cases were rebuilt, and those that came out differently."""

    cases: int
    mismatches: tuple[Mismatch, ...]


@dataclass(frozen=True)
class SpineCase:
    """One worked tree, as read from a file."""

    before: int
    anchor: int
    chain: tuple[int, ...]
    unigram: Mapping[str, Row]
    bigram: Mapping[str, Row]
    shape: SpineShape
    expected: Mapping[str, tuple[int, ...]]

    def rebuild(self) -> TreeBuilder:
        """The tree that Algorithm 1 makes of the case's tables."""
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


def check_goose(path: str | Path) -> GoldenReport:
    """Rebuild every case of the file and compare tokens, parents and kinds.

    Raises:
        DraftwoodError: the file cannot be read, or is not of the format above.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DraftwoodError(f"cannot read {path} as JSON ({error}); give a golden file") from error
    cases = _entry(document, "cases", list, str(path))
    compared = [_compare(i, _case(raw, f"{path}, case {i}")) for i, raw in enumerate(cases)]
    return GoldenReport(len(cases), tuple(found for found in compared if found is not None))


def _compare(number: int, case: SpineCase) -> Mismatch | None:
    builder = case.rebuild()
    rebuilt = {
        "tokens": builder.tokens,
        "parents": builder.parents,
        "kinds": [_KINDS[source] for source in builder.sources],
    }
    first = {
        name: _first_difference(expected, rebuilt[name]) for name, expected in case.expected.items()
    }
    differing = {name: node for name, node in first.items() if node is not None}
    if not differing:
        return None
    return Mismatch(
        number,
        tuple(differing),
        min(differing.values()),
        len(case.expected["tokens"]),
        len(builder),
    )


def _first_difference(expected: Sequence[int], rebuilt: Sequence[int]) -> int | None:
    for i, (a, b) in enumerate(zip(expected, rebuilt, strict=False)):
        if a != b:
            return i
    return None if len(expected) == len(rebuilt) else min(len(expected), len(rebuilt))


def _case(raw: object, where: str) -> SpineCase:
    tables = _entry(raw, "tables", dict, where)
    params = _entry(raw, "params", dict, where)
    counts = {name: _entry(params, name, int, f"{where}, params") for name in ("B", "D", "K")}
    shares = {
        name: float(_entry(params, name, (int, float), f"{where}, params"))
        for name in ("r", "rho", "min_score")
    }
    if min(counts.values()) < 1 or not all(0.0 <= share <= 1.0 for share in shares.values()):
        raise DraftwoodError(
            f"{where}: params needs B, D and K of at least 1, and r, rho and min_score in [0, 1]"
        )
    return SpineCase(
        before=_entry(raw, "prev", int, where),
        anchor=_entry(raw, "anchor", int, where),
        chain=_tokens(raw, "chain", where),
        unigram=_table(tables, "unigram", where),
        bigram=_table(tables, "bigram", where),
        shape=SpineShape(
            size=counts["B"],
            ratio=shares["r"],
            rho=shares["rho"],
            max_depth=counts["D"],
            top_k=counts["K"],
            room=counts["B"],  # no deeper tree has so few nodes
            min_score=shares["min_score"],
        ),
        expected={name: _tokens(raw, name, where) for name in ("tokens", "parents", "kinds")},
    )


def _entry(raw: object, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(raw, dict) or key not in raw:
        raise DraftwoodError(
            f'{where}: there is no "{key}"; see the format in draftwood.lab.golden'
        )
    value = raw[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DraftwoodError(f'{where}: "{key}" is a {type(value).__name__}, not what it should be')
    return value


def _tokens(raw: object, key: str, where: str) -> tuple[int, ...]:
    values = _entry(raw, key, list, where)
    if not all(type(value) is int for value in values):
        raise DraftwoodError(f'{where}: "{key}" must be a list of integers')
    return tuple(values)


def _table(raw: object, key: str, where: str) -> dict[str, Row]:
    table = _entry(raw, key, dict, f"{where}, tables")
    try:
        rows = {
            name: tuple((int(token), float(score)) for token, score in row)
            for name, row in table.items()
        }
    except (TypeError, ValueError) as error:
        raise DraftwoodError(
            f'{where}: rows of "{key}" must be lists of [token, score] pairs'
        ) from error
    if any(
        token < 0 or not 0.0 <= score < math.inf for row in rows.values() for token, score in row
    ):
        raise DraftwoodError(f'{where}: "{key}" needs tokens and finite scores of 0 or more')
    return rows
