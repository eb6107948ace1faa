"""A tree whose siblings are tested: all before the first decision, or each where it is needed."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray

from draftwood.protocols import Verification
from draftwood.tree import ROOT
from draftwood.verifiers._residuals.batched import Batched, SubmittedTests, read, results, submit
from draftwood.verifiers._residuals.sequential import Sequential
from draftwood.verifiers._residuals.siblings import Siblings, children_of, rows_of

Tested: TypeAlias = Batched | Sequential
"""The result of testing a node's children."""


class Mode(Enum):
    """Modes of the sibling test; their results differ by rounding only."""

    BATCHED = "batched"
    SEQUENTIAL = "sequential"


class JudgedTree:
    """A tree and the results of its tests.

    Args:
        case: the tree.

    Attributes:
        children: of each node, in drawing order.
        tested: results by node; None where no token can follow.
    """

    __slots__ = ("case", "children", "tested")

    def __init__(self, case: Verification) -> None:
        self.case = case
        self.children = children_of(case.tree)
        self.tested: dict[int, Tested | None] = {}

    def siblings(self, node: int) -> Siblings:
        """A node with its children."""
        return Siblings(self.case, node, self.children[node])

    def at(self, node: int, reach: float) -> Tested | None:
        """The result of a node with children; it is tested now unless that was done before.

        None: no token can follow the node, so that it is judged as a leaf. Plain decoding fails
        only where a text really gets there, as :func:`draftwood.verifiers._residuals.bonus` does.

        Args:
            node: the node.
            reach: its P, above 0.
        """
        if node not in self.tested:
            [p] = self.case.p.probabilities([node])
            self.tested[node] = Sequential(self.siblings(node), reach, p)
        found = self.tested[node]
        if found is not None and found.dead:
            found = self.tested[node] = None
        return found


_Level: TypeAlias = list[tuple[JudgedTree, int]]
"""Nodes with children."""


def judged_trees(
    cases: Sequence[Verification], mode: Mode | None = None, *, carried: bool
) -> list[JudgedTree]:
    """Trees whose siblings are tested as far as that is cheap.

    Args:
        cases: trees whose root has children.
        mode: batched: all are tested, level by level. Sequential: each is tested where it is
            needed. By default that is so if p is on the CPU, where arithmetic costs most; on a GPU
            calls do.
        carried: P of a node is what the test at its parent gives; else it is 1.
    """
    trees = [JudgedTree(case) for case in cases]
    _read(_submitted(trees, mode, carried, waits=not all(case.p.everywhere for case in cases)))
    return trees


class BegunTrees:
    """Trees whose siblings the device may still be testing.

    Args:
        cases: trees whose root has children, and of which p may be asked after any node.
        carried: see :func:`judged_trees`.

    Attributes:
        tensors: what the results need of the device.
    """

    def __init__(self, cases: Sequence[Verification], *, carried: bool) -> None:
        self._trees = [JudgedTree(case) for case in cases]
        self._unread = _submitted(self._trees, Mode.BATCHED, carried, waits=False)
        self.tensors = [each for _, tests in self._unread for each in tests.tensors]

    def judged(
        self, cases: Sequence[Verification], numbers: Sequence[NDArray[Any]]
    ) -> list[JudgedTree]:
        """The trees with all results.

        Args:
            cases: those of the beginning, with all of the target's output.
            numbers: :attr:`tensors` on the host.
        """
        found = results([tests for _, tests in self._unread], numbers)
        _give(self._unread, found)
        for tree, case in zip(self._trees, cases, strict=True):
            tree.case = case
        return self._trees


_Unread: TypeAlias = list[tuple[_Level, SubmittedTests]]
"""Tests whose results the trees do not have yet."""


def _submitted(
    trees: Sequence[JudgedTree], mode: Mode | None, carried: bool, *, waits: bool
) -> _Unread:
    """Test the trees' siblings level by level; returns what was not read.

    ``waits``: p may not be asked after every node, so that a level needs the results of the last.
    """
    level: _Level = [(tree, ROOT) for tree in trees]
    unread: _Unread = []
    reaches: dict[tuple[JudgedTree, int], int] = {}
    before: torch.Tensor | None = None
    while level:
        groups = [tree.siblings(node) for tree, node in level]
        p = rows_of([(siblings.case.p, siblings.node) for siblings in groups])
        if mode is None:
            mode = Mode.SEQUENTIAL if p[0].device.type == "cpu" else Mode.BATCHED
        if mode is Mode.SEQUENTIAL:
            for (tree, node), siblings, row in zip(level, groups, p, strict=True):
                tree.tested[node] = Sequential(siblings, 1.0, row)
            break
        known = None if before is None else (before, [reaches[place] for place in level])
        tests = submit(groups, p, known)
        unread.append((level, tests))
        if waits:
            _read(unread)
            unread = []
        if carried:
            before, reaches = tests.numbers, _places(level, tests)
        level = [
            (tree, child)
            for tree, node in level
            for j, child in enumerate(tree.children[node])
            if tree.children[child] and (not waits or _reached(tree.tested[node], j))
        ]
    return unread


def _places(level: _Level, tests: SubmittedTests) -> dict[tuple[JudgedTree, int], int]:
    """Where P of each child of the nodes is among the flattened numbers of their tests."""
    return {
        (level[i][0], child): tests.place(row, j)
        for row, i in enumerate(tests.order)
        for j, child in enumerate(tests.groups[row].children)
    }


def _reached(tested: Tested | None, child: int) -> bool:
    """Whether P of a child is above 0; its test has been read."""
    return not isinstance(tested, Batched) or tested.probabilities[child] > 0


def _read(unread: _Unread) -> None:
    """Give the trees the results of their tests, after one wait."""
    if unread:
        _give(unread, read([tests for _, tests in unread]))


def _give(unread: _Unread, found: Sequence[Sequence[Batched]]) -> None:
    for (level, _), tested in zip(unread, found, strict=True):
        for (tree, node), result in zip(level, tested, strict=True):
            tree.tested[node] = result
