"""The two exact yields agree, and the tree builders build what they say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.lab.theory.rated_tree import (
    RatedTree,
    chain,
    enumerated_longest_yield,
    enumerated_yield,
    expected_yield,
    isotropic,
    spine_tree,
)
from draftwood.lab.theory.yields import AcceptanceRates

examples = settings(max_examples=80)


@st.composite
def rated_trees(draw: st.DrawFn) -> RatedTree:
    nodes = draw(st.integers(0, 9))
    parents = tuple(draw(st.integers(0, node - 1)) for node in range(1, nodes + 1))
    rates = tuple(draw(st.floats(0.0, 1.0)) for _ in range(nodes))
    return RatedTree((-1, *parents), (1.0, *rates))


@examples
@given(rated_trees())
def test_recursion_equals_enumeration(tree: RatedTree) -> None:
    assert expected_yield(tree) == pytest.approx(enumerated_yield(tree), rel=1e-12)


@examples
@given(rated_trees())
def test_the_longest_path_is_at_least_the_walk(tree: RatedTree) -> None:
    assert enumerated_longest_yield(tree) >= enumerated_yield(tree) - 1e-12


def test_sibling_order_is_the_priority() -> None:
    """Root children a and b at 1/2 each, one of them with a sure child: who goes first matters."""
    deep_first = RatedTree((-1, 0, 0, 1), (1.0, 0.5, 0.5, 1.0))
    deep_last = RatedTree((-1, 0, 0, 2), (1.0, 0.5, 0.5, 1.0))
    assert expected_yield(deep_first) == pytest.approx(1 + 0.5 * 2 + 0.25)
    assert expected_yield(deep_last) == pytest.approx(1 + 0.5 + 0.25 * 2)
    assert enumerated_yield(deep_last) == pytest.approx(expected_yield(deep_last))


def test_the_greedy_walk_does_not_always_find_the_longest_path() -> None:
    """With the shallow sibling first and both accepted, the walk stops one token short."""
    tree = RatedTree((-1, 0, 0, 2), (1.0, 1.0, 1.0, 1.0))
    assert enumerated_yield(tree) == 2.0
    assert enumerated_longest_yield(tree) == 3.0


def test_the_bare_root_yields_the_bonus() -> None:
    root = RatedTree((-1,), (1.0,))
    assert root.drafted == 0
    assert expected_yield(root) == enumerated_yield(root) == enumerated_longest_yield(root) == 1.0


def test_chain() -> None:
    assert chain(3, 0.5).parents == (-1, 0, 1, 2)
    assert expected_yield(chain(3, 0.5)) == pytest.approx(1.875)
    assert chain(0, 0.5).drafted == 0


def test_isotropic_is_filled_breadth_first() -> None:
    assert isotropic(7, 2, 0.3).parents == (-1, 0, 0, 1, 1, 2, 2, 3)
    assert isotropic(4, 1, 0.3) == chain(4, 0.3)
    phi = 1 - 0.7**3
    assert expected_yield(isotropic(3 + 9, 3, 0.3)) == pytest.approx(1 + phi + phi**2)


def test_spine_tree_layout() -> None:
    rates = AcceptanceRates(0.6, 0.2)
    tree = spine_tree(2, [1, 0, 2], rates, 2)
    assert tree.parents == (-1, 0, 1, 0, 3, 2, 5, 2, 7)
    assert tree.rates == (1.0, 0.6, 0.6, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2)
    assert spine_tree(2, [3, 1], rates, 4).drafted == 2 + 4 * 4
    assert spine_tree(0, [2], rates).parents == (-1, 0, 0)
