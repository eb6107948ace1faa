"""Shapes in words: their trees and the probability of each."""

import numpy as np
import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.tape import Tape, explore
from draftwood.lab.lossless.tiny import Prefix, Row
from draftwood.tree import Draw, TokenTree
from tests.golden.proposed import ProposedRows
from tests.golden.shapes import Place, grow, parse_shape

Grown = dict[tuple[tuple[int, ...], ...], float]


def q(prefix: Prefix) -> Row:
    return np.array([0.5, 0.3, 0.2] if not prefix else [0.0, 0.25, 0.75])


def grown(text: str) -> Grown:
    """Trees as the token paths of their nodes, with their probabilities."""
    proposed = ProposedRows(torch.float64)

    def run(starts: list[None], tapes: list[Tape]) -> list[TokenTree]:
        return [grow(parse_shape(text), q, proposed, tape) for tape in tapes]

    (found,) = explore(run, [None])  # type: ignore[arg-type]
    trees = [tree for tree, _ in found]
    for tree in trees:
        rows = [proposed.rows[handle] for handle in tree.q_rows if handle >= 0]
        assert all(abs(float(row.sum()) - 1) < 1e-12 for row in rows)
    return {
        tuple(tree.path_tokens(node) for node in range(1, len(tree))): weight
        for tree, weight in found
    }


def test_a_chain() -> None:
    found = grown("chain of 2")
    assert len(found) == 6
    assert found[((0,), (0, 1))] == pytest.approx(0.125)
    assert found[((2,), (2, 2))] == pytest.approx(0.15)


def test_brackets() -> None:
    text = "root:[1:[leaf,leaf],2:[leaf]] all sampled w/o replacement"
    leaf = Place()
    assert parse_shape(text) == (Place(children=(leaf, leaf)), Place(children=(leaf,)))
    assert parse_shape("root:[leaf,leaf] all sampled w/o replacement") == (leaf, leaf)
    found = grown("root:[leaf,leaf] all sampled w/o replacement")
    assert found == pytest.approx(
        {
            ((0,), (1,)): 0.3,
            ((0,), (2,)): 0.2,
            ((1,), (0,)): 0.3 * 5 / 7,
            ((1,), (2,)): 0.3 * 2 / 7,
            ((2,), (0,)): 0.125,
            ((2,), (1,)): 0.075,
        }
    )


def test_with_replacement() -> None:
    found = grown("two children drawn with replacement, Q=Ms")
    assert found[((0,), (0,))] == pytest.approx(0.25)
    assert found[((0,), (2,))] == pytest.approx(0.1)
    assert len(found) == 9


def test_the_most_probable() -> None:
    text = "binary depth 2, the two most probable tokens of Ms, one-hot Q"
    assert grown(text) == {((0,), (0, 2), (0, 1), (1,), (1, 2), (1, 1)): 1.0}


def test_a_sampled_child_beside_a_given_one() -> None:
    text = (
        "root:[sampled from Ms minus token 2, with one sampled child; then token 2 (one-hot) "
        "with one-hot child 0]"
    )
    above, beside = parse_shape(text)
    assert above == Place(children=(Place(),), exclude=frozenset({2}))
    assert beside == Place(Draw.ONE_HOT, (Place(Draw.ONE_HOT, token=0),), token=2)
    assert grown(text) == pytest.approx(
        {
            ((0,), (0, 1), (2,), (2, 0)): 0.625 * 0.25,
            ((0,), (0, 2), (2,), (2, 0)): 0.625 * 0.75,
            ((1,), (1, 1), (2,), (2, 0)): 0.375 * 0.25,
            ((1,), (1, 2), (2,), (2, 0)): 0.375 * 0.75,
        }
    )


def test_places_that_q_cannot_fill_stay_empty() -> None:
    text = "root:[leaf,1:[leaf,leaf,leaf]] all sampled w/o replacement"
    assert {len(paths) for paths in grown(text)} == {4}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "chain of many",
        "chain of 10",
        "six children drawn with replacement, Q=Ms",
        "root:[leaf all sampled w/o replacement",
        "root:[leaf,] all sampled w/o replacement",
        "root:[twig] all sampled w/o replacement",
    ],
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(DraftwoodError, match="is not"):
        parse_shape(text)
