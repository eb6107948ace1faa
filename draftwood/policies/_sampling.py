"""Drawing children from a drafter: the code that policies with sampled trees share.

A tree may be sampled in any way, as long as each token is drawn from its stated distribution, given
everything drawn before it, and then stays (Traversal Verification, Definition 3.1: every child is a
sample given its parent and its earlier siblings). So the number of a node's children and the token
that is excluded from their drawing are arguments here, fixed before the drawing. Every drawn token
becomes a node, in drawing order. A deterministic sibling follows the drawn ones, because
verification tests it last.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.policies._frontier import (
    NO_ROWS,
    Frontier,
    Level,
    certain_children,
    certain_frontier,
    children,
    lay_copied,
    log_probability,
    promote,
)
from draftwood.protocols import Candidates, Continue, DraftNoise, Expand, Growth, Policy, setting
from draftwood.tree import Draw, TreeBuilder


@dataclass(frozen=True, eq=False)
class Drawing:
    """The rule that chooses the children of one step.

    Attributes:
        source: name of the drafter.
        draw: how siblings are drawn, or ``ONE_HOT`` where the request is greedy.
        temperature: of q.
        noise: random numbers, in lanes by node.
    """

    source: str
    draw: Draw
    temperature: float
    noise: DraftNoise | None

    def likeliest(self, builder: TreeBuilder, frontier: Frontier, k: int) -> Expand:
        """The query for the ``k`` likeliest children, which are not sampled."""
        return Expand(self.source, builder, frontier.nodes, k, temperature=self.temperature)

    def sample(
        self,
        builder: TreeBuilder,
        frontier: Frontier,
        k: int,
        exclude: Sequence[frozenset[int]],
    ) -> Expand:
        """The query for ``k`` drawn children of each node, without the tokens of ``exclude``."""
        return Expand(
            self.source,
            builder,
            frontier.nodes,
            k,
            draw=self.draw,
            exclude=exclude,
            temperature=self.temperature,
            noise=self.noise,
        )


@dataclass(frozen=True)
class DrawnPolicy(Policy):
    """Settings of a policy that can sample children from a drafter.

    Raises:
        DraftwoodError: a setting outside its range, or one source named twice.
    """

    budget: int = setting(59, "most nodes to draft, root excluded", search=(8, 16, 32, 59), least=0)
    source: str = setting("draft", "name of the drafter", source="successors")
    replacement: bool = setting(
        False, "sample siblings independently, so that they may repeat (if any are sampled)"
    )
    draft_temperature: float = setting(
        0.0, "temperature of sampled drafts; 0 is the request's own", least=0, below=math.inf
    )

    @property
    def draws(self) -> frozenset[Draw]:
        """Sampled nodes; deterministic ones at least where the request is greedy."""
        return frozenset({Draw.ONE_HOT, self._draw})

    @property
    def _draw(self) -> Draw:
        return Draw.IID if self.replacement else Draw.WITHOUT_REPLACEMENT

    def drawing(self, growth: Growth) -> Drawing:
        """The rule that chooses children in this step."""
        if growth.temperature == 0.0:
            return Drawing(self.source, Draw.ONE_HOT, 1.0, None)
        temperature = self.draft_temperature or growth.temperature
        return Drawing(self.source, self._draw, temperature, growth.noise)


@dataclass(frozen=True)
class TopOrDrawn(DrawnPolicy):
    """Settings of a policy whose nodes get the drafter's likeliest children, or as many drawn ones.

    Whether a drawn token stays must not depend on which token it is. So where the policy would take
    a node's likeliest children, it counts them, before anything of their level is drawn, and draws
    as many (:func:`draw_as_many`). A greedy request gets the likeliest children in any case.

    ``chain`` names a copying source, whose preferred continuation becomes a path below the root.
    These nodes are laid first, take at most half of the budget, and are neither gated nor pruned.
    Their own descendants come from the drafter, and only where the drafter proposed the copied
    token too and the policy took it; such a token is one node and takes no further budget. A drawn
    tree has no such path: its tokens would have to be excluded from every drawing along it, as in
    ``draftwood.policies.sampled_spine``.

    Raises:
        DraftwoodError: a setting outside its range, one source named twice, or a copied path beside
            drawn children.
    """

    chain: str = setting(
        "", "name of a source that copies, as an extra path; empty: none", source="chains"
    )
    copied: int = setting(10, "longest copied path, in tokens (half the budget at most)", least=1)
    children: Literal["top", "drawn"] = setting(
        "top", "a node's children: the likeliest, or as many samples of the draft model"
    )
    last: Literal["none", "top"] = setting(
        "none", "a node's last child: sampled too, or the likeliest (children=drawn)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chain and self.children == "drawn":
            raise DraftwoodError(
                "children=drawn has no copied path beside the tree: leave chain out, or use "
                "method goose-sampled"
            )
        if self.children == "top" and (self.replacement or self.draft_temperature):
            raise DraftwoodError(
                "replacement and draft_temperature are of drawn children: give children=drawn too"
            )

    @property
    def draws(self) -> frozenset[Draw]:
        """Sampled nodes if children are drawn; deterministic ones, where the request is greedy."""
        if self.children == "top" or (self.last == "top" and not self.branching):
            return frozenset({Draw.ONE_HOT})
        return super().draws

    def drawing(self, growth: Growth) -> Drawing:
        """The rule that chooses children in this step."""
        if self.children == "top":
            return Drawing(self.source, Draw.ONE_HOT, 1.0, None)
        return super().drawing(growth)

    def copy(self, growth: Growth, budget: int) -> Generator[Continue, Any, TreeBuilder]:
        """The root, and the copied path if a source copies."""
        tree = TreeBuilder(growth.anchor)
        if self.chain:
            yield from lay_copied(tree, self.chain, min(self.copied, budget // 2, growth.room))
        return tree


def draw_below(
    builder: TreeBuilder,
    frontier: Frontier,
    counts: NDArray[np.int64],
    drawing: Drawing,
    certain: Level,
    certain_source: str,
    min_score: float = 0.0,
) -> Generator[Expand, Any, tuple[Frontier, Frontier]]:
    """Draw children of a frontier, and append those that are certain behind them.

    One query serves all nodes: the drafter draws as many children as the node with the most wants,
    and another keeps the front of its drawing, which is distributed as a shorter drawing is.

    Args:
        builder: the growing tree.
        frontier: ``m`` nodes.
        counts: ``[m]``, children to draw below each.
        drawing: how they are drawn.
        certain: children whose tokens are excluded from the drawing below their parents.
        certain_source: name of the source that offered these. If it is the drafter itself, the
            others' logq, which it gives without those tokens, is put back on the scale of q.
        min_score: least estimate of a child that is not drawn. A drawn child always stays.

    Returns:
        The drawn children, parent by parent in drawing order, and the certain ones.
    """
    wanted = counts > 0
    asked, drawn = frontier.where(wanted), certain_frontier([])
    if asked.nodes:
        excluded: dict[int, set[int]] = {}
        for parent, token, _ in certain.rows():
            excluded.setdefault(parent, set()).add(token)
        exclude = [frozenset(excluded.get(node, ())) for node in asked.nodes]
        k = int(counts.max())
        answer: Candidates = yield drawing.sample(
            builder, asked, k, exclude if any(exclude) else ()
        )
        level = children(asked, answer, counts[wanted])
        if certain_source == drawing.source:
            level = _with_share(level, certain)
        if drawing.draw is Draw.ONE_HOT:
            level = level.take(level.logq >= log_probability(min_score))
        q_rows = NO_ROWS
        if answer.q_rows is not None:
            q_rows = dict(zip(asked.nodes, answer.q_rows.tolist(), strict=True))
        drawn = promote(builder, level, drawing.source, draw=drawing.draw, q_rows=q_rows)
    return drawn, promote(builder, certain, certain_source)


def draw_as_many(
    builder: TreeBuilder,
    frontier: Frontier,
    chosen: Level,
    drawing: Drawing,
    last: Literal["none", "top"],
    budget: int,
) -> Generator[Expand, Any, Frontier]:
    """Draw as many children of each node as a deterministic policy would give it.

    Which children that policy chose depends on q and on what was drawn before, not on what will be
    drawn, so their number is a fair one. Where the request is greedy they are taken themselves.

    Args:
        builder: the growing tree.
        frontier: nodes whose likeliest children are known.
        chosen: the children that the policy would take, those of one parent likeliest first.
        drawing: how they are drawn.
        last: ``"top"`` keeps the likeliest child of each parent and draws the others.
        budget: most nodes of the tree, root excluded; the first of ``chosen`` that fit are taken.
    """
    if drawing.draw is Draw.ONE_HOT:
        return promote(builder, chosen, drawing.source, budget)
    chosen = chosen.take(np.arange(min(budget - builder.drafted, len(chosen))))
    counts = (chosen.parents == np.array(frontier.nodes)[:, None]).sum(axis=1)
    certain = certain_children()
    if last == "top":
        _, first = np.unique(chosen.parents, return_index=True)
        certain = chosen.take(np.sort(first))
        counts = np.maximum(counts - 1, 0)
    drawn, certain_nodes = yield from draw_below(
        builder, frontier, counts, drawing, certain, drawing.source
    )
    nodes = drawn.nodes + certain_nodes.nodes
    return Frontier(nodes, np.concatenate([drawn.path, certain_nodes.path]))


def _with_share(level: Level, certain: Level) -> Level:
    """A level whose estimates, given that ``certain`` is not drawn, become unconditional."""
    taken: dict[int, float] = {}
    for parent, _, logq in certain.rows():
        taken[parent] = taken.get(parent, 0.0) + math.exp(logq)
    # Above 0, because a child was drawn: q of the certain children may round to 1.
    least = float(np.finfo(np.float32).tiny)
    left = [max(1.0 - taken.get(parent, 0.0), least) for parent in level.parents.tolist()]
    scale = np.log(np.array(left))
    return Level(level.parents, level.tokens, level.logq + scale, level.path + scale)
