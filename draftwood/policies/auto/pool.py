"""The candidates of one step: a growing tree of all that was offered, and what speaks for each.

A candidate that several sources offer below one parent is one node, and its cell
(:mod:`draftwood.policies.auto.features`) holds what all of them say. Each node has the chance that
the target takes it if it took its parent, and their product along the path. Candidates whose path
is less likely than a floor are not kept, nor anything below them. Pure; chances come from whoever
grows it.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftwood.policies.auto import features
from draftwood.policies.auto.features import OTHER, SILENT, Codes, Voice, naming
from draftwood.policies.auto.forecast import Table
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder

_New: TypeAlias = tuple[int, int, int, float, float]
"""A new candidate: parent, token, code, chance, chance of its path."""

Row: TypeAlias = tuple[int, list[int], list[int]]
"""What a source ranks below a node: the node, tokens, -1 where there is none, and their codes."""

_OTHERS = {voice: tuple(other for other in Voice if other is not voice) for voice in Voice}


class Pool:
    """See the module.

    Args:
        anchor: the root's token.
        table: predicts acceptance.
        floor: least path chance of a candidate that is kept.
        most: candidates kept at most.

    Attributes:
        builder: all candidates kept, in the order in which they came.
        path: probability of each node that it and all its ancestors are taken; 1 for the root.
        probabilities: of each node, that it is taken if its parent is.
        codes: features of each node.
        children: of each node.
    """

    def __init__(self, anchor: int, table: Table, floor: float, most: int) -> None:
        self.builder = TreeBuilder(anchor)
        self.path: list[float] = [1.0]
        self._table = table
        self._floor = floor
        self._most = most
        self.probabilities: list[float] = [1.0]
        self.codes: list[Codes] = [(SILENT, SILENT, SILENT)]
        # Who has offered children of each node, a bit for each voice.
        self._spoken: list[int] = [0]
        self.children: list[list[int]] = [[]]
        self._choice: tuple[tuple[float, int, int], list[int]] | None = None

    def __len__(self) -> int:
        return len(self.path)

    @property
    def full(self) -> bool:
        """Whether nothing more would be kept."""
        return len(self) > self._most

    @property
    def settled(self) -> int:
        """Candidates that are drafted whatever the price."""
        return 0

    def copy(self, tokens: Sequence[int], match_length: int, source: str, preferred: bool) -> None:
        """A copied continuation of the root, as far down as it is likely enough; these come before
        all that is offered."""
        if not tokens:
            return
        alone, chance = naming(0, Voice.COPIED), self._table.probability
        child, path, spoken, floor = self.builder.child, self.path, self._spoken, self._floor
        node, new = ROOT, len(self) == 1
        for i, token in enumerate(tokens):
            known = None if new else child(node, token)
            if known is None:
                new = True  # below a node that is new there is nothing yet
                code = features.copied_code(match_length + i, preferred=preferred, first=i == 0)
                likely = chance(alone[code])
                if path[node] * likely < floor or len(path) > self._most:
                    return
                known = self._add(node, token, source, Voice.COPIED, code, likely)
            spoken[node] |= 1 << Voice.COPIED
            node = known

    def offer(
        self,
        voice: Voice,
        source: str,
        nodes: Sequence[int],
        tokens: NDArray[np.int64],
        logq: NDArray[np.float32],
        front: int | None = None,
        draw: Draw = Draw.ONE_HOT,
    ) -> list[int]:
        """Ranked children of some nodes, likeliest first; the new ones among them that were kept.

        Args:
            voice: the kind of source.
            source: its name.
            nodes: ``m`` nodes of the pool.
            tokens: int64 ``[m, k]``, -1 where there is none; a row without any says nothing.
            logq: float32 ``[m, k]``, natural logs of the scores; a token whose score is not a
                finite number is taken for none.
            front: only so many of each row may be new, if given.
            draw: how they were chosen: ``ONE_HOT``, or ``COUPLED``, whose scores are shares in a
                race.
        """
        rows = said(nodes, tokens, logq, draw)
        if not rows:
            return []
        self._hear(voice, rows)
        child, chance_of, floor = self.builder.child, self._table.probability, self._floor
        kept: list[_New] = []
        for node, row, codes in rows:
            reach, named = self.path[node], naming(self._spoken[node], voice)
            childless = not self.children[node]
            for token, code in zip(row[:front], codes, strict=False):
                if token < 0:
                    continue
                chance = chance_of(named[code])
                path = reach * chance
                if path >= floor and (childless or child(node, token) is None):
                    kept.append((node, token, code, chance, path))
        room = self._most - len(self) + 1
        if len(kept) > room:
            best = sorted(range(len(kept)), key=lambda i: -kept[i][-1])[: max(0, room)]
            kept = [kept[i] for i in sorted(best)]
        new = self._add_all(kept, source, voice)
        if draw is not Draw.ONE_HOT:
            for node in new:
                self.builder.draws[node] = draw
        return new

    def covered(self, node: int) -> float:
        """Chance that one of the node's candidates is taken, given that the node is."""
        reach = self.path[node]
        below = sum(self.path[child] for child in self.children[node])
        return min(1.0, below / reach) if reach > 0 else 1.0

    def spoken(self, voice: Voice, node: int) -> bool:
        """Whether such a source has offered children of the node."""
        return bool(self._spoken[node] >> voice & 1)

    def likeliest(self, most: int) -> list[float]:
        """The largest path probabilities of candidates, at most ``most``, best first."""
        return sorted(self.path[1:], reverse=True)[:most]

    def chosen(self, price: float, most: int) -> list[int]:
        """The likeliest candidates, none less likely than ``price``, at most ``most``, in the order
        of a tree's nodes.

        A child is never likelier than its parent, so these are a tree.
        """
        if price > 1.0:
            return []
        asked = (price, most, len(self))
        if self._choice is None or self._choice[0] != asked:
            self._choice = asked, self._likeliest(price, most)
        return self._choice[1]

    def _likeliest(self, price: float, most: int) -> list[int]:
        found = [node for node, path in enumerate(self.path) if path >= price][1:]
        if len(found) > most:
            found.sort(key=self.path.__getitem__, reverse=True)
            found = sorted(found[:most])
        return found

    def tree(self, chosen: Sequence[int], route: str) -> TokenTree:
        """The tree of some candidates, given in the order of its nodes."""
        logq = [math.log(self.probabilities[node]) for node in chosen]
        return self.builder.part(chosen, route if chosen else "plain", logq)

    def only(self, voice: Voice, node: int) -> bool:
        """Whether no other source has named the node."""
        codes, (one, another) = self.codes[node], _OTHERS[voice]
        return codes[one] <= OTHER and codes[another] <= OTHER

    def _add_all(self, new: Sequence["_New"], source: str, voice: Voice) -> list[int]:
        """The same as :meth:`_add` for many at once, none of which is below another."""
        if not new:
            return []
        parents, tokens, codes, chances, paths = map(list, zip(*new, strict=True))
        nodes = self.builder.extend(parents, tokens, source)
        self.path += paths
        self.probabilities += chances
        spoken, children = self._spoken, self.children
        self.codes += [
            naming(spoken[parent], voice)[code] for parent, code in zip(parents, codes, strict=True)
        ]
        self._spoken += [0] * len(new)
        self.children += [[] for _ in new]
        for node, parent in zip(nodes, parents, strict=True):
            children[parent].append(node)
        return list(nodes)

    def _add(
        self, parent: int, token: int, source: str, voice: Voice, code: int, chance: float
    ) -> int:
        """A new candidate, of which one voice says something and others that have spoken do not."""
        node = self.builder.add(parent, token, source)
        self.path.append(self.path[parent] * chance)
        self.probabilities.append(chance)
        self.codes.append(naming(self._spoken[parent], voice)[code])
        self._spoken.append(0)
        self.children.append([])
        self.children[parent].append(node)
        return node

    def _hear(self, voice: Voice, rows: Sequence[Row]) -> None:
        """What such rows of tokens and codes say of the nodes' children so far."""
        touched: list[int] = []
        for node, row, codes in rows:
            self._spoken[node] |= 1 << voice
            below = self.children[node]
            if below:
                said = dict(zip(row, codes, strict=True))
                for child in below:
                    self._hears(child, voice, said.get(self.builder.tokens[child], OTHER))
                touched += below
        if touched:
            self._estimate(touched)

    def _hears(self, node: int, voice: Voice, code: int) -> None:
        codes = list(self.codes[node])
        codes[voice] = code
        self.codes[node] = (codes[0], codes[1], codes[2])

    def told(self, voice: Voice, node: int, code: int) -> float:
        """The chance of a new child of a node, of which one voice says something and others that
        have spoken do not."""
        return self._table.probability(naming(self._spoken[node], voice)[code])

    def _estimate(self, nodes: Sequence[int]) -> None:
        """The chances of some nodes anew, after more has been said of them, and all paths."""
        for node in nodes:
            self.probabilities[node] = self._table.probability(self.codes[node])
        self._choice = None
        parents, path = self.builder.parents, self.path
        for node in range(1, len(path)):
            path[node] = path[parents[node]] * self.probabilities[node]


def said(
    nodes: Sequence[int],
    tokens: NDArray[np.int64],
    logq: NDArray[np.float32],
    draw: Draw = Draw.ONE_HOT,
) -> list[Row]:
    """Rows of which some token is known. A score that is no finite number is no evidence."""
    codes = features.coupled_codes if draw is Draw.COUPLED else features.ranked_codes
    known = np.where(np.isfinite(logq), tokens, -1).tolist()
    rows = zip(nodes, known, codes(logq).tolist(), strict=True)
    return [row for row in rows if max(row[1], default=-1) >= 0]
