"""Shapes in words: their places, and the trees of those that no stored ensemble has."""

import numpy as np
import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.tape import Tape, explore
from draftwood.lab.lossless.tiny import Prefix, Row
from draftwood.tree import Draw, TokenTree
from tests.golden.explicit_trees import ProposedRows
from tests.golden.shapes import Place, grow, parse_shape

LEAF, TOP = Place(), Place(Draw.ONE_HOT)
CHAIN = Place(children=(LEAF,))


def q(prefix: Prefix) -> Row:
    return np.array([0.5, 0.3, 0.2] if not prefix else [0.0, 0.25, 0.75])


def grown(text: str) -> dict[tuple[tuple[int, ...], ...], float]:
    """Trees as the token paths of their nodes, with their probabilities."""

    def run(starts: list[None], tapes: list[Tape]) -> list[TokenTree]:
        return [grow(parse_shape(text), q, ProposedRows(), tape) for tape in tapes]

    (found,) = explore(run, [None])  # type: ignore[arg-type]
    return {
        tuple(tree.path_tokens(node) for node in range(1, len(tree))): weight
        for tree, weight in found
    }


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("chain of 2", (CHAIN,)),
        (
            "root:[1:[leaf,leaf],2:[leaf]] all sampled w/o replacement",
            (Place(children=(LEAF, LEAF)), CHAIN),
        ),
        ("root:[leaf,leaf] all sampled w/o replacement", (LEAF, LEAF)),
        ("two children drawn with replacement, Q=Ms", (Place(Draw.IID),) * 2),
        (
            "binary depth 2, the two most probable tokens of Ms, one-hot Q",
            (Place(Draw.ONE_HOT, (TOP, TOP)),) * 2,
        ),
        (
            "root:[sampled from Ms minus token 2, with one sampled child; then token 2 (one-hot) "
            "with one-hot child 0]",
            (
                Place(children=(LEAF,), exclude=frozenset({2})),
                Place(Draw.ONE_HOT, (Place(Draw.ONE_HOT, token=0),), token=2),
            ),
        ),
    ],
)
def test_descriptions_are_parsed(text: str, places: tuple[Place, ...]) -> None:
    assert parse_shape(text) == places


def test_siblings_are_drawn_in_order() -> None:
    assert grown("root:[leaf,leaf] all sampled w/o replacement") == pytest.approx(
        {
            ((0,), (1,)): 0.3,
            ((0,), (2,)): 0.2,
            ((1,), (0,)): 0.3 * 5 / 7,
            ((1,), (2,)): 0.3 * 2 / 7,
            ((2,), (0,)): 0.125,
            ((2,), (1,)): 0.075,
        }
    )


def test_places_that_q_cannot_fill_stay_empty() -> None:
    text = "root:[leaf,1:[leaf,leaf,leaf]] all sampled w/o replacement"
    assert {len(paths) for paths in grown(text)} == {4}


@pytest.mark.parametrize(
    "text",
    [
        "",
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
