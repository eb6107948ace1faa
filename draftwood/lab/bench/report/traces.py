"""Traces (TALON, Figure 14): the beginning of an answer, each token by its source, and trees."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.document import Document, Excerpt, StepExcerpt, TreeExcerpt
from draftwood.lab.bench.report.words import printable
from draftwood.lab.picture.layout import layout
from draftwood.lab.picture.svg import drawing
from draftwood.tree import TokenTree, TreeBuilder

REJECTED, BONUS = "rejected", "bonus"


@dataclass(frozen=True)
class Token:
    """A token's visible text and its kind: ``rejected``, ``bonus``, or ``sK`` of the source K."""

    text: str
    kind: str


@dataclass(frozen=True)
class Step:
    """A step's tokens, its description, and the id of its tree, empty if none is shown."""

    about: str
    tree: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Tree:
    """A drawn tree; ``svg`` is escaped by the picture."""

    id: str
    step: int
    svg: Markup


@dataclass(frozen=True)
class Trace:
    """One excerpt.

    Attributes:
        method: name of the contender.
        number: of the prompt on the page.
        title: task and id of the prompt.
        about: counts.
        prompt: the end of the context.
        steps: all steps.
        trees: of some of them.
    """

    method: str
    number: int
    title: str
    about: str
    prompt: str
    steps: tuple[Step, ...]
    trees: tuple[Tree, ...]


def traces(document: Document, names: Sequence[str]) -> Iterator[Trace]:
    """All excerpts.

    Args:
        document: as read.
        names: all sources of the page; a source's place decides its colour.

    Raises:
        DraftwoodError: an excerpt's tree is no tree.
    """
    prompts = list(dict.fromkeys(excerpt.id for excerpt in document.excerpts))
    for place, found in enumerate(document.excerpts):
        ids = {tree.step: f"tree-{place}-{tree.step}" for tree in found.trees}
        tokens = sum(len(step.committed) for step in found.steps)
        each = f", {tokens / len(found.steps):.2f} a step" if found.steps else ""
        yield Trace(
            found.method,
            prompts.index(found.id),
            f"{found.task}: {found.id}",
            f"{len(found.steps)} steps, {tokens} tokens{each}",
            found.prompt,
            tuple(_step(i, step, names, ids.get(i, "")) for i, step in enumerate(found.steps)),
            tuple(Tree(ids[t.step], t.step, _drawn(found, t, names)) for t in found.trees),
        )


def _step(place: int, step: StepExcerpt, names: Sequence[str], tree: str) -> Step:
    accepted = [one for one in step.committed if one.source]
    bonus = step.committed[len(accepted) :]
    tokens = (
        *(Token(visible(one.text, "\n"), f"s{names.index(one.source)}") for one in accepted),
        *(Token(visible(word), REJECTED) for word in step.rejected),
        *(Token(visible(one.text, "\n"), BONUS) for one in bonus),
    )
    counts = f"{step.drafted} drafted, {len(accepted)} accepted"
    return Step(f"step {place}, route {step.route or '-'}: {counts}", tree, tokens)


def _drawn(excerpt: Excerpt, found: TreeExcerpt, names: Sequence[str]) -> Markup:
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


def sources(document: Document) -> list[str]:
    """All sources that an excerpt names, in order."""
    named = (
        source
        for excerpt in document.excerpts
        for found in (
            (one.source for step in excerpt.steps for one in step.committed if one.source),
            (source for tree in excerpt.trees for source in tree.sources[1:]),
        )
        for source in found
    )
    return list(dict.fromkeys(named))


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
