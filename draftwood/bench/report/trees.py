"""Trees of an excerpt's steps as pictures, in a frame that a script lets one pan and zoom."""

import math
from collections.abc import Sequence

from draftwood.bench.plots.record import Step
from draftwood.bench.report.words import text
from draftwood.bench.tree_excerpt import TreeExcerpt
from draftwood.errors import DraftwoodError
from draftwood.picture.layout import layout
from draftwood.picture.vector import drawing
from draftwood.tree import TokenTree, TreeBuilder


def figure(found: TreeExcerpt, steps: Sequence[Step], names: Sequence[str], id: str) -> str:
    """The tree with its caption.

    Args:
        found: in words.
        steps: of its excerpt.
        names: all sources of the page, whose places decide their colours.
        id: of the element.

    Raises:
        DraftwoodError: it is no tree.
    """
    route = steps[found.step].route if found.step < len(steps) else ""
    picture = layout(
        tree_of(found, route), found.path, found.texts, found.bonus or None, sources=names
    )
    caption = f"Step {found.step}"
    return (
        f'<figure class="tree" id="{text(id)}"><figcaption>{caption}</figcaption>'
        f'<div class="viewport" tabindex="0" role="group" aria-label="Tree of {caption.lower()}">'
        f"{drawing(picture)}</div></figure>"
    )


def tree_of(found: TreeExcerpt, route: str) -> TokenTree:
    """The tree, of which neither token ids nor how they were drawn are known: log q is NaN.

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
