"""Verification that begins behind a forward: what fails there is verified as before."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from draftwood.engine.early import EarlyVerdicts, begin
from draftwood.protocols import BegunVerification, Verdict, Verification
from draftwood.tree import Draw, TokenTree, tree_of
from draftwood.verifiers.walk import Walk
from tests.verifiers.small_laws import CannedP, CannedQ, Script, always, rows_along

TREE = tree_of([3, 4], [-1, 0])
NUMBERS = [np.zeros(1)]


class BegunTrees:
    """Verification that was begun."""

    tensors: ClassVar = [torch.zeros(1)]

    def __init__(self, cases: Sequence[Verification]) -> None:
        self.cases = cases

    def verdicts(
        self, cases: Sequence[Verification], numbers: Sequence[NDArray[Any]]
    ) -> list[Verdict]:
        assert numbers is NUMBERS
        if any(case.noise is None for case in cases):
            raise ValueError("a request's own failure")
        return [Verdict((), i) for i, _ in enumerate(cases)]


class Early:
    """A verifier that begins early."""

    accepts: ClassVar = frozenset(Draw)
    branching: ClassVar = True

    def early(self, tree: TokenTree) -> bool:
        return len(tree) > 1

    def begin(self, cases: Sequence[Verification]) -> BegunVerification:
        if len(cases) > 2:
            raise ValueError("too many")
        return BegunTrees(cases)

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        raise NotImplementedError


class Nowhere(CannedP):
    """p that may not be asked after any node."""

    everywhere: ClassVar = False


def case(p: type[CannedP] = CannedP, tree: TokenTree = TREE, noise: Any = True) -> Verification:
    rows = rows_along(tree, always(0.5, 0.5))
    return Verification(tree, p(rows, tree), CannedQ({}), noise and Script())


def test_trees_that_allow_it_begin() -> None:
    root = tree_of([3], [-1])
    found = begin(Early(), [(7, case()), (2, case(Nowhere)), (5, case()), (1, case(tree=root))])
    assert [*found.numbers] == [7, 5]
    assert found.tensors is BegunTrees.tensors
    found.found = NUMBERS
    later = {number: case() for number in (1, 2, 5, 7)}
    assert found.verdicts(later) == {7: Verdict((), 0), 5: Verdict((), 1)}
    assert isinstance(found.begun, BegunTrees)
    assert len(found.begun.cases) == 2


@pytest.mark.parametrize("verifier", [Walk(), Early()])
def test_there_may_be_nothing_to_begin(verifier: Any) -> None:
    found = begin(verifier, [(2, case(Nowhere))])
    assert (found.begun, found.tensors) == (None, ())
    assert found.verdicts({2: case()}) == {}


def test_a_failure_leaves_all_to_the_usual_verification() -> None:
    assert begin(Early(), [(n, case()) for n in range(3)]).begun is None
    begun = begin(Early(), [(n, case()) for n in range(2)])
    begun.found = NUMBERS
    assert begun.verdicts({0: case(), 1: case(noise=None)}) == {}
    assert begun.verdicts({0: case()}) == {}, "the other one has failed since"


def test_nothing_began() -> None:
    assert EarlyVerdicts().verdicts({1: case()}) == {}
