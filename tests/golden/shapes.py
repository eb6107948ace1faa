"""Shapes of an ensemble's trees, parsed from the file's words.

Known descriptions::

    chain of 3
    root:[1:[leaf,leaf],2:[leaf]] all sampled w/o replacement
    two children drawn with replacement, Q=Ms
    binary depth 2, the two most probable tokens of Ms, one-hot Q
    root:[sampled from Ms minus token 2, with one sampled child; then token 2 (one-hot) with
    one-hot child 2]

Ms is the drafter's table.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import ranked, sample, without
from draftwood.lab.lossless.tape import Tape
from draftwood.lab.lossless.tiny import Law, Prefix, Row
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder
from tests.golden.explicit_trees import SOURCE, ProposedRows

COUNTS = {word: i for i, word in enumerate(("one", "two", "three", "four", "five"), start=1)}


@dataclass(frozen=True)
class Place:
    """A node of a shape.

    Attributes:
        draw: how the token is chosen.
        children: places below, in drawing order.
        token: the given token; None for the most probable one that no sibling has.
        exclude: tokens that q leaves out before the draw.
    """

    draw: Draw = Draw.WITHOUT_REPLACEMENT
    children: tuple["Place", ...] = ()
    token: int | None = None
    exclude: frozenset[int] = frozenset()


def grow(shape: Sequence[Place], q: Law, proposed: ProposedRows, tape: Tape) -> TokenTree:
    """One tree of the shape, drawn by the tape; places that q cannot fill stay empty."""
    builder = TreeBuilder(0)

    def fill(node: int, path: Prefix, places: Sequence[Place]) -> None:
        gone: set[int] = set()
        for place in places:
            row = without(q(path), place.exclude)
            token = _token(place, row, gone, tape)
            if token is None:
                continue
            handle = -1 if place.draw is Draw.ONE_HOT else proposed.handle(row)
            child = builder.add(node, token, SOURCE, draw=place.draw, q_row=handle)
            gone.add(token)
            fill(child, (*path, token), place.children)

    fill(ROOT, (), shape)
    return builder.build()


def _token(place: Place, row: Row, gone: set[int], tape: Tape) -> int | None:
    """The token of a place after the siblings ``gone``; None if no token is left."""
    if place.token is not None:
        return place.token
    if place.draw is Draw.ONE_HOT:
        return next((token for token in ranked(row) if token not in gone), None)
    left = without(row, gone) if place.draw is Draw.WITHOUT_REPLACEMENT else row
    return next(sample(tape, left, 1, place.draw), None)


def parse_shape(text: str) -> tuple[Place, ...]:
    """Parse a description; the places of the root's children.

    Raises:
        DraftwoodError: the description has none of the forms above.
    """
    for pattern, build in _KNOWN.items():
        if found := re.fullmatch(pattern, text.strip()):
            return build(*found.groups())
    raise DraftwoodError(
        f"the shape {text!r} is not understood: see tests/golden/shapes.py for the known forms"
    )


def _levels(depth: str, width: int, draw: Draw) -> tuple[Place, ...]:
    below: tuple[Place, ...] = ()
    for _ in range(int(depth)):
        below = (Place(draw, below),) * width
    return below


def _bracketed(text: str) -> tuple[Place, ...]:
    """``[1:[leaf,leaf],2:[leaf]]``; the text before a colon is a label."""

    def places(lists: list[Any]) -> tuple[Place, ...]:
        return tuple(Place(children=places(each)) for each in lists)

    try:
        return places(json.loads(re.sub(r"\d+:", "", text).replace("leaf", "[]")))
    except ValueError as error:
        raise DraftwoodError(f"{text!r} is not a shape in brackets") from error


def _mixed(gone: str, count: str, token: str, below: str | None) -> tuple[Place, ...]:
    drawn = Place(children=(Place(),) * COUNTS[count], exclude=frozenset({int(gone)}))
    under = () if below is None else (Place(Draw.ONE_HOT, token=int(below)),)
    return (drawn, Place(Draw.ONE_HOT, under, token=int(token)))


_COUNT = f"({'|'.join(COUNTS)})"
_KNOWN: dict[str, Callable[..., tuple[Place, ...]]] = {
    r"chain of (\d)": lambda length: _levels(length, 1, Draw.WITHOUT_REPLACEMENT),
    r"root:(\[[^\s]*\]) all sampled w/o replacement": _bracketed,
    rf"{_COUNT} children drawn with replacement, Q=Ms": (
        lambda count: _levels("1", COUNTS[count], Draw.IID)
    ),
    rf"binary depth (\d), the {_COUNT} most probable tokens of Ms, one-hot Q": (
        lambda depth, count: _levels(depth, COUNTS[count], Draw.ONE_HOT)
    ),
    (
        rf"root:\[sampled from Ms minus token (\d+), with {_COUNT} sampled child; "
        r"then token (\d+) \(one-hot\)(?: with one-hot child (\d+))?\]"
    ): _mixed,
}
