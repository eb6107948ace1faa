"""The common part of drafters that score the tokens after a path by a small product.

Such a drafter computes a state of the committed text once a step. The distribution after a node
follows from that state and the tokens on the node's path; nodes do not see one another. So all new
nodes of a depth, of all requests, are one batch, and nothing is cached for drafted tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from draftwood.drafters._ahead import AheadDrafter
from draftwood.protocols import Expand, TargetInfo
from draftwood.tree import TreeBuilder

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._rollout.topk import Place


@dataclass
class _Scored:
    """The nodes of a slot's tree that were scored in this step.

    Attributes:
        tree: the policy's.
        places: the output at each node.
    """

    tree: TreeBuilder | None = None
    places: dict[int, Place] = field(default_factory=dict)

    def missing(self, query: Expand) -> list[int]:
        """The nodes of a query that were not scored."""
        if self.tree is not query.tree:
            self.tree = query.tree
            self.places.clear()
        return [node for node in query.nodes if node not in self.places]


class PathDrafter(AheadDrafter):
    """Proposes the likeliest tokens after each path, or samples.

    A drafter whose class says :attr:`at_once` counts a forward for each state, another one for each
    batch of nodes.

    Args:
        token_ids: int64 ``[Vd]``, the id of each output; those beyond the target's tokens are
            padding.
        target: the target.
        depth: tokens drafted ahead.
    """

    def __init__(self, token_ids: torch.Tensor, target: TargetInfo, depth: int) -> None:
        super().__init__(token_ids, target)
        self._target = target
        self._depth = depth
        self._scored: dict[int, _Scored] = {}

    @abstractmethod
    def read(self, slots: Sequence[int]) -> None:
        """Compute the states of some slots, of which the step begins."""

    @abstractmethod
    def scores(self, depth: int, slots: Sequence[int], paths: torch.Tensor) -> torch.Tensor:
        """Logits ``[m, Vd]`` after some nodes, which may be overwritten.

        Args:
            depth: of the nodes.
            slots: of the nodes, ``m``.
            paths: int64 ``[m, depth + 1]``, the tokens from the root to each node.
        """

    def prepare(self, slots: Sequence[int]) -> None:
        """Compute the states of the slots that have none."""
        import torch

        fresh = [slot for slot in slots if slot not in self._scored]
        if fresh:
            with torch.inference_mode():
                self.read(fresh)
            self._forwards += int(self.at_once)
            self._scored |= {slot: _Scored() for slot in fresh}

    def ahead(self, slot: int) -> int:  # noqa: ARG002
        """The same for all."""
        return self._depth

    @property
    def deepest(self) -> int:
        """Tokens drafted ahead."""
        return self._depth

    def places(self, asked: Sequence[tuple[int, Expand]]) -> list[list[Place]]:
        """The output at each node; new nodes are scored, those of a depth together."""
        new: dict[int, list[tuple[int, int]]] = {}
        trees = {slot: query.tree for slot, query in asked}
        for slot, query in asked:
            for node in dict.fromkeys(self._scored[slot].missing(query)):
                new.setdefault(query.tree.depths[node], []).append((slot, node))
        self._forwards += int(bool(new) and not self.at_once)
        for depth, nodes in new.items():
            self._score(depth, nodes, trees)
        return [[self._scored[slot].places[node] for node in query.nodes] for slot, query in asked]

    def forget(self, slot: int) -> None:
        """Drop the state of a slot."""
        self._scored.pop(slot, None)

    def _score(
        self, depth: int, nodes: Sequence[tuple[int, int]], trees: Mapping[int, TreeBuilder]
    ) -> None:
        """Score new nodes of a depth, given with their slots."""
        import torch

        from draftwood.copies import uploaded

        paths = [[trees[slot].tokens[0], *trees[slot].path_tokens(node)] for slot, node in nodes]
        with torch.inference_mode():
            [given] = uploaded([np.array(paths)], self._target.device)
            logits = self.scores(depth, [slot for slot, _ in nodes], given)
        rows = self.ranked(logits)
        for row, (slot, node) in enumerate(nodes):
            self._scored[slot].places[node] = rows, row
