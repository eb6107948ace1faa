"""Traces (TALON, Figure 14): the beginning of an answer, each token by who offered it.

Everything is in the page; a script shows the chosen ones, and without scripts they are folded.
"""

import math
from collections.abc import Sequence

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.document import Document, Excerpt, StepExcerpt, TreeExcerpt
from draftwood.lab.bench.report.words import spelt, text
from draftwood.lab.picture.layout import layout
from draftwood.lab.picture.svg import drawing
from draftwood.tree import TokenTree, TreeBuilder


def figure(found: TreeExcerpt, steps: Sequence[StepExcerpt], names: Sequence[str], id: str) -> str:
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


def sources(document: Document) -> list[str]:
    """All drafters that an excerpt names, in order: a source's place decides its colour."""
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


def legend(names: Sequence[str]) -> str:
    """What the colours mean."""
    drafters = "".join(
        f'<li><span class="token s{k}">token</span> accepted from {text(name)}</li>'
        for k, name in enumerate(names)
    )
    return (
        f'<ul class="legend">{drafters}'
        '<li><span class="token bonus">token</span> bonus: the target\'s own</li>'
        '<li><s class="token">token</s> drafted and rejected</li></ul>'
    )


def excerpts(document: Document, names: Sequence[str]) -> str:
    """Every excerpt with its trees."""
    prompts = list(dict.fromkeys(excerpt.id for excerpt in document.excerpts))
    return "".join(
        _excerpt(place, excerpt, prompts.index(excerpt.id), names)
        for place, excerpt in enumerate(document.excerpts)
    )


def _excerpt(place: int, excerpt: Excerpt, prompt: int, names: Sequence[str]) -> str:
    tokens = sum(len(step.committed) for step in excerpt.steps)
    each = f", {tokens / len(excerpt.steps):.2f} a step" if excerpt.steps else ""
    about = f"{len(excerpt.steps)} steps, {tokens} tokens{each}"
    drawn = {tree.step: f"tree-{place}-{tree.step}" for tree in excerpt.trees}
    numbers = {name: k for k, name in enumerate(names)}
    trace = "".join(
        _step(i, step, numbers, drawn.get(i, "")) for i, step in enumerate(excerpt.steps)
    )
    trees = "".join(figure(tree, excerpt.steps, names, drawn[tree.step]) for tree in excerpt.trees)
    first = " open" if place == 0 else ""
    return (
        f'<details class="excerpt" data-prompt="{prompt}" data-method="{text(excerpt.method)}"'
        f' data-title="{text(excerpt.task)}: {text(excerpt.id)}"{first}>'
        f"<summary>{text(excerpt.method)} <small>{text(excerpt.task)}: {text(excerpt.id)}</small>"
        f"</summary><p><small>{about}</small></p>"
        f'<div class="trace"><span class="prompt">{text(excerpt.prompt)}</span>{trace}</div>'
        f"{trees}</details>"
    )


def _step(place: int, step: StepExcerpt, numbers: dict[str, int], tree: str) -> str:
    accepted = sum(bool(one.source) for one in step.committed)
    about = f"step {place}, route {step.route or '-'}: {step.drafted} drafted, {accepted} accepted"
    parts = [f'<span class="step" title="{text(about)}">']
    if tree:
        parts.append(f'<a href="#{tree}" title="the tree of step {place}">tree</a>')
    for one in step.committed[:accepted]:
        parts.append(
            f'<span class="token s{numbers[one.source]}">{visible(one.text, "<br>")}</span>'
        )
    parts += [f'<s class="token">{visible(word)}</s>' for word in step.rejected]
    for one in step.committed[accepted:]:
        parts.append(f'<span class="token bonus">{visible(one.text, "<br>")}</span>')
    return "".join((*parts, "</span>"))


def visible(word: str, broken: str = "") -> str:
    """A token as HTML.

    Line ends and tabs get a sign, and so do spaces, but for a single one before a character: there
    the token's own colour shows it.

    Args:
        word: the token's text.
        broken: what follows the sign of a line end.
    """
    return "".join(_sign(word, i, broken) for i in range(len(word))) or "∅"


def _sign(word: str, i: int, broken: str) -> str:
    character = word[i]
    if character == " ":
        beside = word[i + 1 : i + 2], word[i - 1 : i] if i else "x"
        return "·" if any(not c or c.isspace() for c in beside) else " "
    signs = {"\n": f"↵{broken}", "\t": "⇥"}
    return signs.get(character) or text(character if character.isprintable() else spelt(character))
