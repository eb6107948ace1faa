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

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import ranked, sample, without
from draftwood.lab.lossless.tape import Tape
from draftwood.lab.lossless.tiny import Law, Prefix, Row
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder
from tests.golden.proposed import SOURCE, ProposedRows

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
        found = re.fullmatch(pattern, text.strip())
        if found:
            return build(*found.groups())
    raise DraftwoodError(
        f"the shape {text!r} is not understood: see tests/golden/shapes.py for the known forms"
    )


def _chain(length: str) -> tuple[Place, ...]:
    below: tuple[Place, ...] = ()
    for _ in range(int(length)):
        below = (Place(children=below),)
    return below


def _bracketed(text: str) -> tuple[Place, ...]:
    """``[1:[leaf,leaf],2:[leaf]]``; the text before a colon is a label."""
    leaves = re.sub(r"\d+:", "", text)
    if re.fullmatch(r"leaf", leaves):
        return ()
    inner = re.fullmatch(r"\[(.*)\]", leaves)
    if inner is None:
        raise DraftwoodError(f"{text!r} is not a shape in brackets")
    parts, depth = [""], 0
    for char in inner[1]:
        depth += (char == "[") - (char == "]")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return tuple(Place(children=_bracketed(part)) for part in parts)


def _with_replacement(count: str) -> tuple[Place, ...]:
    return (Place(Draw.IID),) * _number(count)


def _most_probable(depth: str, count: str) -> tuple[Place, ...]:
    below: tuple[Place, ...] = ()
    for _ in range(int(depth)):
        below = (Place(Draw.ONE_HOT, below),) * _number(count)
    return below


def _mixed(gone: str, count: str, token: str, below: str | None) -> tuple[Place, ...]:
    drawn = Place(children=(Place(),) * _number(count), exclude=frozenset({int(gone)}))
    under = () if below is None else (Place(Draw.ONE_HOT, token=int(below)),)
    return (drawn, Place(Draw.ONE_HOT, under, token=int(token)))


def _number(word: str) -> int:
    return COUNTS[word]


_COUNT = f"({'|'.join(COUNTS)})"
_KNOWN: dict[str, Callable[..., tuple[Place, ...]]] = {
    r"chain of (\d)": _chain,
    r"root:(\[[^\s]*\]) all sampled w/o replacement": _bracketed,
    rf"{_COUNT} children drawn with replacement, Q=Ms": _with_replacement,
    rf"binary depth (\d), the {_COUNT} most probable tokens of Ms, one-hot Q": _most_probable,
    (
        rf"root:\[sampled from Ms minus token (\d+), with {_COUNT} sampled child; "
        r"then token (\d+) \(one-hot\)(?: with one-hot child (\d+))?\]"
    ): _mixed,
}
