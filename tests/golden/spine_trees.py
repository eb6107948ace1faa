"""Rebuilds worked spine trees (GOOSE, Algorithm 1) and compares them with the file's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any

from draftwood.files import Count, Range, decode
from draftwood.policies._spine import SpineShape
from draftwood.policies.spine import Successors, attach_branches
from draftwood.tree import ROOT_SOURCE, TreeBuilder
from tests.golden.comparison import Check, Number, compare

KINDS = {ROOT_SOURCE: 0, "spine": 1, "branch": 2}

Row = tuple[tuple[Count, Annotated[float, Range(0)]], ...]
Positive = Annotated[int, Range(1)]
Share = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class SuccessorTables:
    """Rows of ``[token, score]``, best first, by ``"token"`` and by ``"previous,token"``."""

    unigram: Mapping[str, Row]
    bigram: Mapping[str, Row]


@dataclass(frozen=True)
class GooseParams:
    """GOOSE's parameters; B counts the root."""

    B: Positive
    D: Positive
    K: Positive
    r: Share
    rho: Share
    min_score: Share

    def shape(self) -> SpineShape:
        """The same as the policy's; no tree of B nodes is deeper than its room."""
        return SpineShape(
            size=self.B,
            ratio=self.r,
            rho=self.rho,
            max_depth=self.D,
            top_k=self.K,
            room=self.B,
            min_score=self.min_score,
        )


@dataclass(frozen=True)
class SpineCase:
    """One worked tree.

    Attributes:
        prev: the token before the anchor.
        anchor: the root's token.
        chain: tokens of the context match.
        tables: successors of tokens.
        params: GOOSE's parameters.
        tokens: expected tokens, in order of attachment.
        parents: expected parents.
        kinds: expected kinds: 0 root, 1 spine, 2 branch.
    """

    prev: int
    anchor: int
    chain: tuple[int, ...]
    tables: SuccessorTables
    params: GooseParams
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    kinds: tuple[int, ...]

    def rebuild(self) -> TreeBuilder:
        """The tree that Algorithm 1 builds from the case's tables."""
        shape = self.params.shape()
        builder = TreeBuilder(self.anchor)
        builder.add_chain(self.chain[: shape.spine_length(len(self.chain))], "spine")
        growing = attach_branches(builder, shape, "branch")
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
            before = self.prev if parent < 0 else builder.tokens[parent]
            unigram = self.tables.unigram.get(str(token), ())
            rows.append(self.tables.bigram.get(f"{before},{token}", unigram)[: self.params.K])
        return [[t for t, _ in row] for row in rows], [[s for _, s in row] for row in rows]


def check_spine_trees(file: Mapping[str, Any]) -> list[Check]:
    """Rebuild every case of a file.

    Raises:
        DraftwoodError: a case is not a :class:`SpineCase`.
    """
    cases = decode(tuple[SpineCase, ...], file["cases"], "cases")
    return [compare(f"case {i}", (0.0, _numbers(case))) for i, case in enumerate(cases)]


def _numbers(case: SpineCase) -> Iterator[Number]:
    builder = case.rebuild()
    kinds = [KINDS[source] for source in builder.sources]
    for name, found, expected in (
        ("token", builder.tokens, case.tokens),
        ("parent", builder.parents, case.parents),
        ("kind", kinds, case.kinds),
    ):
        for node, (one, other) in enumerate(zip_longest(found, expected, fillvalue=-2)):
            yield Number(f"{name} of node {node}", one, other)
