"""The candidates of one step: a growing tree of all candidates, with their features.

A candidate that several sources list below one parent is one node, and its bucket
(:mod:`draftwood.policies.auto.features`) has the codes of all of them. Each node has a probability,
that the target takes it if it took its parent, and the product of these along its path. Candidates
whose path is less likely than a floor are dropped, and so is all below them. The root's children
stay: whether they were right is always known afterwards, so that a bucket is learnt that is thought
not to pay. Pure; probabilities come from the forecast.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftwood.policies.auto import features
from draftwood.policies.auto.copies import copy_discount
from draftwood.policies.auto.features import (
    COPIED,
    NOT_ASKED,
    NOT_LISTED,
    SOURCES,
    TABLE,
    Codes,
    Features,
    Source,
    coding,
    features_of,
)
from draftwood.policies.auto.forecast import Predictor
from draftwood.protocols import Descend, Descent, Describe
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder

_New: TypeAlias = tuple[int, int, int, float, float]
"""A new candidate: parent, token, code, probability, probability of its path."""

Row: TypeAlias = tuple[int, list[int], list[int]]
"""A ranked row below a node: the node, tokens, -1 where there is none, and their codes."""


class Pool:
    """The candidates of one step of one request, as a growing tree.

    Args:
        anchor: the root's token.
        acceptance: predicts the acceptance of candidates.
        floor: lowest path probability of a candidate below another one.
        most: candidates at most.
        sources: in the order of the codes.
        chain: one path is drafted, and not a tree.

    Attributes:
        builder: all candidates, in the order in which they came.
        path: probability of each node that it and all its ancestors are taken; 1 for the root.
        probabilities: of each node, that it is taken if its parent is.
        codes: features of each node.
        children: of each node.
        copied: nodes that a copy passes.
    """

    def __init__(
        self,
        anchor: int,
        acceptance: Predictor,
        floor: float,
        most: int,
        sources: tuple[Source, ...] = SOURCES,
        *,
        chain: bool = False,
    ) -> None:
        self._chain = chain
        self.builder = TreeBuilder(anchor)
        self.path: list[float] = [1.0]
        self._acceptance = acceptance
        self._floor = floor
        self._most = most
        self.probabilities: list[float] = [1.0]
        self.codes: list[Codes] = [(NOT_ASKED,) * len(sources)]
        self._features = features_of(sources)
        # Sources that have offered children of each node, a bit for each.
        self._answered: list[int] = [0]
        self.children: list[list[int]] = [[]]
        self.copied: set[int] = set()
        self._discounted: tuple[tuple[float, int], list[float]] | None = None
        self._choice: tuple[tuple[float, int, float, int], list[int]] | None = None

    def __len__(self) -> int:
        return len(self.path)

    @property
    def full(self) -> bool:
        """Whether no further candidate would be added."""
        return len(self) > self._most

    @property
    def ranks(self) -> int:
        """Most successors of a node that could be likely enough, of one source that ranks them.

        The n-th has a probability of 1/n at most.
        """
        return math.ceil(1.0 / self._floor)

    @property
    def settled(self) -> int:
        """Candidates that are drafted whatever the price."""
        return 0

    def copy(
        self,
        tokens: Sequence[int],
        code_of: Callable[[int], int],
        name: str,
        source: int = COPIED,
    ) -> None:
        """Add a copied continuation of the root, as far down as it is likely enough.

        Args:
            tokens: the continuation.
            code_of: the code of each of its tokens, by its place
                (:func:`draftwood.policies.auto.features.copied_codes`).
            name: of the drafter.
            source: position of the source.
        """
        only, probability = self._features.only, self._acceptance.probability
        child, path, answered, floor = self.builder.child, self.path, self._answered, self._floor
        node, new, bit = ROOT, len(self) == 1, 1 << source
        changed: list[int] = []  # estimated at once: each estimate takes as long as the pool
        for i, token in enumerate(tokens):
            known = None if new else child(node, token)
            code = code_of(i)
            others = list(self.children[node]) if not answered[node] & bit else []
            if known is None:
                self._estimate(changed)
                changed = []
                new = True  # below a node that is new there is nothing yet
                likely = probability(only(answered[node], source)[code])
                dropped = node != ROOT and path[node] * likely < floor
                if dropped or len(path) > self._most:
                    return
                known = self._add(node, token, name, source, code, likely)
            elif self.codes[known][source] <= NOT_LISTED:
                self._set_code(known, source, code)
                changed.append(known)
            for other in others:
                if other != known:
                    self._set_code(other, source, NOT_LISTED)
            changed += others
            answered[node] |= bit
            self.copied.add(known)
            node = known
        self._estimate(changed)

    def offer(
        self,
        source: int,
        name: str,
        nodes: Sequence[int],
        tokens: NDArray[np.int64],
        logq: NDArray[np.float32],
        front: int | None = None,
        draw: Draw = Draw.ONE_HOT,
    ) -> list[int]:
        """Add ranked children of some nodes, likeliest first; returns the new nodes.

        Args:
            source: position of the source.
            name: of the drafter.
            nodes: ``m`` nodes of the pool.
            tokens: int64 ``[m, k]``, -1 where there is none; a row without any counts as no answer.
            logq: float32 ``[m, k]``, natural logs of the scores; a token whose score is not a
                finite number is taken for none.
            front: only so many of each row may be new, if given.
            draw: how they were chosen: ``ONE_HOT``, or ``COUPLED``, whose scores are shares in
                Gumbel top-k order.
        """
        rows = coded_rows(nodes, tokens, logq, draw, self._features.sources[source])
        if not rows:
            return []
        self._update(source, rows)
        child, probability, floor = self.builder.child, self._acceptance.probability, self._floor
        added: list[_New] = []
        for node, row, codes in rows:
            reach, only = self.path[node], self._features.only(self._answered[node], source)
            childless = not self.children[node]
            for token, code in zip(row[:front], codes, strict=False):
                if token < 0:
                    continue
                own = probability(only[code])
                path = reach * own
                kept = path >= floor or node == ROOT
                if kept and (childless or child(node, token) is None):
                    added.append((node, token, code, own, path))
        room = self._most - len(self) + 1
        if len(added) > room:
            best = sorted(range(len(added)), key=lambda i: -added[i][-1])[: max(0, room)]
            added = [added[i] for i in sorted(best)]
        new = self._add_all(added, name, source)
        if draw is not Draw.ONE_HOT:
            for node in new:
                self.builder.draws[node] = draw
        return new

    def description(self, source: int, name: str, nodes: Sequence[int], k: int) -> Describe:
        """The query for what a source says of the children of some nodes.

        Args:
            source: position of the source.
            name: of the drafter.
            nodes: of the pool.
            k: successors of a node.
        """
        below = [child for node in nodes for child in self.children[node]]
        return Describe(name, self.builder, below, k, coding(self._features.sources[source], k))

    def describe(self, source: int, nodes: Sequence[int], codes: Sequence[int]) -> None:
        """Add what a source says of some nodes (:class:`draftwood.protocols.Describe`)."""
        said = [(node, code) for node, code in zip(nodes, codes, strict=True) if code >= 0]
        for node, code in said:
            self._set_code(node, source, code)
        self._estimate([node for node, _ in said])

    def descent(
        self, source: int, nodes: Sequence[int], known: Describe, least: float, deepest: int
    ) -> Descend:
        """The query for further successors of some nodes, level by level.

        Args:
            source: position of the source.
            nodes: of the pool.
            known: the query for their children, answered if there are any.
            least: sum of a level's path probabilities from which on it is asked about.
            deepest: depth of the deepest useful node.
        """
        others = ~(1 << source)
        answered = [self._answered[node] & others for node in nodes]
        kinds = (0, *sorted({*answered} - {0}))
        return Descend(
            known.source,
            known.tree,
            nodes,
            known.nodes,
            [self.path[node] for node in nodes],
            min(known.k, self.ranks),
            known.coding,
            _chances(self._acceptance, self._features, source, kinds),
            [kinds.index(each) for each in answered] if len(kinds) > 1 else [0] * len(nodes),
            self._floor,
            least,
            deepest,
            self._most - len(self) + 1,
        )

    def descend(self, source: int, name: str, found: Descent) -> None:
        """Add the answer to such a query."""
        parents, tokens, codes, chances, paths, answered = found
        self._extend(parents, tokens, codes, chances, paths, name, source)
        for node in answered:
            self._answered[node] |= 1 << source

    def reached(self, nodes: Sequence[int], deepest: int) -> list[int]:
        """Those of some nodes that may have children: above the floor, and above ``deepest``."""
        depths = self.builder.depths
        return [n for n in nodes if self.path[n] >= self._floor and depths[n] < deepest]

    def headroom(self, node: int, price: float) -> float:
        """The most tokens, net of a price, that knowing the token after a node would add.

        Instead of the candidates below it, the one that is right would be drafted. What comes below
        that one is not counted.
        """
        path = self.path
        known = sum(max(0.0, path[child] - price) for child in self.children[node])
        return max(0.0, path[node] - price - known)

    def discount(self, tokens: Callable[[int], float], price: float, most: int) -> float:
        """The discount on copied candidates; of a chain, on those of the best path.

        Args:
            tokens: that the request commits on average, by the nodes of the step
                (:attr:`draftwood.policies.auto.forecast.Forecast.tokens`).
            price: least path probability of another candidate that is drafted.
            most: nodes that are drafted.
        """
        if not self.copied:
            return 1.0
        nodes = self._best_path(most) if self._chain else range(1, len(self))
        copied = [self.path[node] for node in nodes if node in self.copied]
        others = [self.path[node] for node in nodes if node not in self.copied]
        return copy_discount(copied, [path for path in others if path >= price], tokens, most)

    def values(self, discount: float = 1.0) -> list[float]:
        """The value of each node in tokens; 1 for the root.

        It is the path probability, of copied nodes times ``discount``
        (:func:`draftwood.policies.auto.copies.copy_discount`), but no more than the parent's.
        """
        if discount == 1.0:
            return self.path
        asked = (discount, len(self))
        if self._discounted is None or self._discounted[0] != asked:
            self._discounted = asked, self._values(discount)
        return self._discounted[1]

    def _values(self, discount: float) -> list[float]:
        found, copied = [1.0], self.copied
        for node, (parent, own) in enumerate(zip(self.builder.parents, self.path, strict=True)):
            if node == ROOT:
                continue
            value, above = discount * own if node in copied else own, found[parent]
            found.append(value if value < above else above)
        return found

    def best(self, most: int, discount: float = 1.0) -> list[float]:
        """The largest values of candidates, at most ``most``, best first.

        Of a chain, those of the best path.
        """
        values = self.values(discount)
        if self._chain:
            return [values[node] for node in self._best_path(most)]
        return sorted(values[1:], reverse=True)[:most]

    def chosen(self, price: float, most: int, discount: float = 1.0) -> list[int]:
        """The candidates with the largest values: at most ``most``, none below ``price``.

        They are in the order of a tree's nodes. A child is never worth more than its parent, so
        these are a tree. Of a chain, they are the beginning of the best path.
        """
        if price > 1.0:
            return []
        asked = (price, most, discount, len(self))
        if self._choice is None or self._choice[0] != asked:
            self._choice = asked, self._choose(price, most, self.values(discount))
        return self._choice[1]

    def _best_path(self, most: int) -> list[int]:
        """The path of at most ``most`` nodes with the most expected tokens; the first of equals.

        Expected are the nodes' path probabilities in sum, without a discount.
        """
        parents, depths, path = self.builder.parents, self.builder.depths, self.path
        expected, best = [0.0] * len(path), ROOT
        for node in range(1, len(path)):
            expected[node] = expected[parents[node]] + path[node]
            if depths[node] <= most and expected[node] > expected[best]:
                best = node
        found = []
        while best != ROOT:
            found.append(best)
            best = parents[best]
        return found[::-1]

    def _choose(self, price: float, most: int, values: Sequence[float]) -> list[int]:
        """The candidates with the largest values, see :meth:`chosen`."""
        if self._chain:
            return [node for node in self._best_path(most) if values[node] >= price]
        found = [node for node, value in enumerate(values) if value >= price][1:]
        if len(found) > most:
            found.sort(key=values.__getitem__, reverse=True)
            found = sorted(found[:most])
        return found

    def tree(self, chosen: Sequence[int], route: str) -> TokenTree:
        """The tree of some candidates, given in the order of its nodes."""
        logq = [math.log(self.probabilities[node]) for node in chosen]
        return self.builder.part(chosen, route if chosen else "plain", logq)

    def probability_of(self, source: int, node: int, code: int) -> float:
        """Probability of a new child of ``node`` that only ``source`` lists, with this code."""
        return self._acceptance.probability(self._features.only(self._answered[node], source)[code])

    def _add_all(self, new: Sequence["_New"], name: str, source: int) -> list[int]:
        """The same as :meth:`_add` for many at once, none of which is below another."""
        if not new:
            return []
        parents, tokens, codes, own, paths = map(list, zip(*new, strict=True))
        return self._extend(parents, tokens, codes, own, paths, name, source)

    def _extend(
        self,
        parents: list[int],
        tokens: list[int],
        codes: list[int],
        own: list[float],
        paths: list[float],
        name: str,
        source: int,
    ) -> list[int]:
        """Add candidates that only ``source`` lists, parents first; returns their nodes."""
        nodes = self.builder.extend(parents, tokens, name)
        self.path += paths
        self.probabilities += own
        answered, only, children = self._answered, self._features.only, self.children
        answered += [0] * len(nodes)
        self.codes += [
            only(answered[parent], source)[code]
            for parent, code in zip(parents, codes, strict=True)
        ]
        children += [[] for _ in nodes]
        for node, parent in zip(nodes, parents, strict=True):
            children[parent].append(node)
        return list(nodes)

    def _add(
        self, parent: int, token: int, name: str, source: int, code: int, probability: float
    ) -> int:
        """Add a candidate that only ``source`` lists; its node."""
        node = self.builder.add(parent, token, name)
        self.path.append(self.path[parent] * probability)
        self.probabilities.append(probability)
        self.codes.append(self._features.only(self._answered[parent], source)[code])
        self._answered.append(0)
        self.children.append([])
        self.children[parent].append(node)
        return node

    def _update(self, source: int, rows: Sequence[Row]) -> None:
        """Set the source's code of all children so far of the rows' nodes."""
        touched: list[int] = []
        for node, row, codes in rows:
            self._answered[node] |= 1 << source
            below = self.children[node]
            if below:
                listed = dict(zip(row, codes, strict=True))
                for child in below:
                    token = self.builder.tokens[child]
                    self._set_code(child, source, listed.get(token, NOT_LISTED))
                touched += below
        self._estimate(touched)

    def _set_code(self, node: int, source: int, code: int) -> None:
        codes = self.codes[node]
        self.codes[node] = (*codes[:source], code, *codes[source + 1 :])

    def _estimate(self, nodes: Sequence[int]) -> None:
        """Estimate some nodes anew, after their codes have changed, and the paths to all below."""
        if not nodes:
            return
        for node in nodes:
            self.probabilities[node] = self._acceptance.probability(self.codes[node])
        self._choice = self._discounted = None
        parents, path = self.builder.parents, self.path
        for node in range(min(nodes), len(path)):
            path[node] = path[parents[node]] * self.probabilities[node]


@lru_cache(maxsize=8)
def _chances(
    acceptance: Predictor, known: Features, source: int, answered: tuple[int, ...]
) -> NDArray[np.float64]:
    """Probabilities of candidates that one source alone lists, ``[len(answered), codes]``.

    All requests of a step ask for the same. ``answered`` is as in :meth:`.features.Features.only`.
    """
    return np.array([[*map(acceptance.probability, known.only(a, source))] for a in answered])


def coded_rows(
    nodes: Sequence[int],
    tokens: NDArray[np.int64],
    logq: NDArray[np.float32],
    draw: Draw = Draw.ONE_HOT,
    source: Source = SOURCES[TABLE],
) -> list[Row]:
    """Rows with a token and a finite score, with their codes; other rows are left out."""
    coupled = draw is Draw.COUPLED
    codes = features.coupled_codes(logq) if coupled else features.ranked_codes(logq, source)
    known = np.where(np.isfinite(logq), tokens, -1).tolist()
    rows = zip(nodes, known, codes.tolist(), strict=True)
    return [row for row in rows if max(row[1], default=-1) >= 0]
