"""The candidates of one step: a growing tree of all that was offered, and what speaks for each.

A candidate that several sources offer below one parent is one node, and its cell
(:mod:`draftwood.evidence`) holds what all of them say. Each node has the chance that the target
takes it if it took its parent, and their product along the path. Candidates whose path is less
likely than a floor are not kept, nor anything below them. Pure; chances come from whoever grows it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood import evidence
from draftwood.evidence import OTHER, SILENT
from draftwood.tree import ROOT, TokenTree, TreeBuilder


class Voice(IntEnum):
    """The kind of a source, in the order of a cell's codes."""

    COPIED = 0
    TABLE = 1
    NEURAL = 2


class Chances(Protocol):
    """Tells how likely candidates are."""

    def chances(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of candidates with these codes, ``[n, 3]``, if their parents are taken: ``[n]``."""
        ...


@dataclass(frozen=True, eq=False)
class Judged:
    """Candidates of which a step has shown whether they were right: int64 codes ``[n, 3]``, and
    which were taken, bool ``[n]``."""

    codes: NDArray[np.int64]
    taken: NDArray[np.bool_]


class Pool:
    """See the module.

    Args:
        anchor: the root's token.
        chances: of candidates.
        floor: least path chance of a candidate that is kept.
        most: candidates kept at most.

    Attributes:
        builder: all candidates kept, in the order in which they came.
        path: chance of each node that it and all its ancestors are taken; 1 for the root.
    """

    def __init__(self, anchor: int, chances: Chances, floor: float, most: int) -> None:
        self.builder = TreeBuilder(anchor)
        self.path: list[float] = [1.0]
        self._chances = chances
        self._floor = floor
        self._most = most
        self._codes: list[list[int]] = [[SILENT, SILENT, SILENT]]
        self._spoken: list[list[bool]] = [[False, False, False]]
        self._children: list[list[int]] = [[]]

    def __len__(self) -> int:
        return len(self.path)

    @property
    def full(self) -> bool:
        """Whether nothing more would be kept."""
        return len(self) > self._most

    def copy(self, tokens: Sequence[int], match_length: int, source: str, preferred: bool) -> None:
        """A copied continuation of the root, as far down as it is likely enough; these come before
        all that is offered."""
        if not tokens:
            return
        codes = [
            evidence.copied_code(match_length + i, preferred=preferred, first=i == 0)
            for i in range(len(tokens))
        ]
        alone = self._chances.chances(np.array([[c, SILENT, SILENT] for c in codes])).tolist()
        node = ROOT
        for token, code, chance in zip(tokens, codes, alone, strict=True):
            known = self.builder.child(node, token)
            if known is None:
                path = self.path[node] * chance
                if path < self._floor or self.full:
                    return
                known = self._add(node, token, source, [code, SILENT, SILENT], chance, path)
            self._spoken[node][Voice.COPIED] = True
            node = known

    def offer(
        self,
        voice: Voice,
        source: str,
        nodes: Sequence[int],
        tokens: NDArray[np.int64],
        logq: NDArray[np.float32],
    ) -> list[int]:
        """Ranked children of some nodes, likeliest first; the new ones among them that were kept.

        Args:
            voice: the kind of source.
            source: its name.
            nodes: ``m`` nodes of the pool.
            tokens: int64 ``[m, k]``, -1 where there is none; a row without any says nothing.
            logq: float32 ``[m, k]``, natural logs of the scores.
        """
        codes = evidence.ranked_codes(logq)
        fresh = tokens >= 0
        knows = fresh[:, 0].tolist()
        heard = np.zeros((len(nodes), 3), dtype=np.int64)
        reach = np.empty(len(nodes))
        changed = False
        for i, node in enumerate(nodes):
            reach[i] = self.path[node]
            if not knows[i]:
                continue
            spoken = self._spoken[node]
            spoken[voice] = True
            heard[i] = [OTHER if says else SILENT for says in spoken]
            for child in self._children[node]:
                same = np.flatnonzero(tokens[i] == self.builder.tokens[child])
                self._codes[child][voice] = int(codes[i, same[0]]) if same.size else OTHER
                fresh[i, same] = False
                changed = True
        if changed:
            self._estimate()
            reach = np.array([self.path[node] for node in nodes])
        rows, columns = fresh.nonzero()
        if not rows.size:
            return []
        said = heard[rows]
        said[:, voice] = codes[rows, columns]
        chances = self._chances.chances(said)
        paths = reach[rows] * chances
        kept = np.flatnonzero(paths >= self._floor)
        room = self._most - len(self) + 1
        if len(kept) > room:
            kept = np.sort(kept[np.argsort(-paths[kept], kind="stable")[: max(0, room)]])
        offered = tokens[rows[kept], columns[kept]].tolist()
        return [
            self._add(nodes[row], token, source, heard_here, chance, path)
            for row, token, heard_here, chance, path in zip(
                rows[kept].tolist(),
                offered,
                said[kept].tolist(),
                chances[kept].tolist(),
                paths[kept].tolist(),
                strict=True,
            )
        ]

    def covered(self, node: int) -> float:
        """Chance that one of the node's candidates is taken, given that the node is."""
        reach = self.path[node]
        below = sum(self.path[child] for child in self._children[node])
        return min(1.0, below / reach) if reach > 0 else 1.0

    def spoken(self, voice: Voice, node: int) -> bool:
        """Whether such a source has offered children of the node."""
        return self._spoken[node][voice]

    def admitted(self, price: float, most: int, route: str) -> TokenTree:
        """The tree of the likeliest candidates, at most ``most``, none less likely than ``price``.

        A child is never likelier than its parent, so these are a tree.
        """
        path = np.array(self.path)
        chosen = np.flatnonzero(path >= price)[1:] if price <= 1.0 else np.empty(0, dtype=np.int64)
        if len(chosen) > most:
            chosen = np.sort(chosen[np.argsort(-path[chosen], kind="stable")[:most]])
        pool = self.builder
        if len(chosen) == pool.drafted:
            return pool.build(route if chosen.size else "plain")
        places = {ROOT: ROOT}
        built = TreeBuilder(pool.tokens[ROOT])
        for node in chosen.tolist():
            places[node] = built.add(
                places[pool.parents[node]],
                pool.tokens[node],
                pool.sources[node],
                logq=pool.logq[node],
            )
        return built.build(route if chosen.size else "plain")

    def judged(self, committed: Sequence[int]) -> Judged:
        """What the committed tokens show of the candidates, whether they were drafted or not."""
        nodes: list[int] = []
        taken: list[bool] = []
        for node, token in self._walked(committed):
            below = self._children[node]
            nodes += below
            taken += [self.builder.tokens[child] == token for child in below]
        return Judged(self._said(nodes), np.array(taken, dtype=np.bool_))

    def found(self, voice: Voice, committed: Sequence[int]) -> list[bool]:
        """For each committed token below a node for which such a source was asked: whether the
        pool holds it there."""
        return [
            self.builder.child(node, token) is not None
            for node, token in self._walked(committed)
            if self.spoken(voice, node)
        ]

    def _walked(self, committed: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The nodes that the committed tokens pass, from the root on, and the token after each."""
        node = ROOT
        for token in committed:
            yield node, token
            below = self.builder.child(node, token)
            if below is None:
                return
            node = below

    def _add(
        self, parent: int, token: int, source: str, codes: list[int], chance: float, path: float
    ) -> int:
        node = self.builder.add(parent, token, source, logq=float(np.log(chance)))
        self.path.append(path)
        self._codes.append(codes)
        self._spoken.append([False, False, False])
        self._children.append([])
        self._children[parent].append(node)
        return node

    def _said(self, nodes: Sequence[int]) -> NDArray[np.int64]:
        return np.array([self._codes[node] for node in nodes], dtype=np.int64).reshape(-1, 3)

    def _estimate(self) -> None:
        """All chances anew, after more has been said of some nodes."""
        chances = self._chances.chances(self._said(range(1, len(self)))).tolist()
        parents, path = self.builder.parents, self.path
        for node, chance in enumerate(chances, start=1):
            path[node] = path[parents[node]] * chance
            self.builder.logq[node] = float(np.log(chance))
