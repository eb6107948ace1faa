"""Traces (TALON, Figure 14): the beginning of an answer, each token by its source, and trees."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.document import Document, Excerpt, TreeExcerpt
from draftwood.lab.bench.report.words import printable
from draftwood.lab.picture.layout import layout
from draftwood.lab.picture.svg import drawing
from draftwood.tree import TokenTree, TreeBuilder


def sources(document: Document) -> list[str]:
    """All sources that an excerpt names, in order; a source's place decides its colour."""
    named: dict[str, None] = {}
    for excerpt in document.excerpts:
        committed = (token for step in excerpt.steps for token in step.committed)
        named |= dict.fromkeys(token.source for token in committed if token.source)
        for tree in excerpt.trees:
            named |= dict.fromkeys(tree.sources[1:])
    return list(named)


def drawn(excerpt: Excerpt, found: TreeExcerpt, names: Sequence[str]) -> Markup:
    """The picture of one of an excerpt's trees, which escapes its texts.

    Args:
        excerpt: the tree's.
        found: the tree.
        names: all sources of the page.

    Raises:
        DraftwoodError: it is no tree.
    """
    route = excerpt.steps[found.step].route if found.step < len(excerpt.steps) else ""
    tree = tree_of(found, route)
    return Markup(
        drawing(layout(tree, found.path, found.texts, found.bonus or None, sources=names))
    )


def tree_of(found: TreeExcerpt, route: str) -> TokenTree:
    """The tree of an excerpt. Token ids and kinds of draw are unknown: log q is NaN.

    Raises:
        DraftwoodError: lengths differ, the root is not first, or a parent follows its child.
    """
    nodes = len(found.parents)
    if not nodes or found.parents[0] != -1 or {len(found.texts), len(found.sources)} != {nodes}:
        raise DraftwoodError(
            f"the document's tree of step {found.step} has {nodes} parents, {len(found.texts)} "
            f"texts and {len(found.sources)} sources: it needs as many of each, the root first"
        )
    builder = TreeBuilder(0)
    for node in range(1, nodes):
        parent = found.parents[node]
        if not 0 <= parent < node:
            raise DraftwoodError(
                f"node {node} of the document's tree of step {found.step} names parent {parent}, "
                "which is not an earlier node"
            )
        # Siblings may share a text, but no two nodes here share an id.
        builder.add(parent, node, found.sources[node], logq=math.nan)
    return builder.build(route)


def visible(word: str, broken: str = "") -> str:
    """A token's text with visible white space.

    Line ends, tabs and spaces become signs. A single space before a character stays: the token's
    colour shows it.

    Args:
        word: the token's text.
        broken: text after the sign of a line end.
    """
    return "".join(_sign(word, i, broken) for i in range(len(word))) or "∅"


def _sign(word: str, i: int, broken: str) -> str:
    character = word[i]
    if character == " ":
        beside = word[i + 1 : i + 2], word[i - 1 : i] if i else "x"
        return "·" if any(not c or c.isspace() for c in beside) else " "
    signs = {"\n": f"↵{broken}", "\t": "⇥"}
    return signs.get(character) or printable(character)
