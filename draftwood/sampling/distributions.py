"""p and q at the nodes of one request's tree: the only softmax over the target in decoding.

Logits processors see at each node exactly what they would have seen had its path been decoded token
by token. Knows nothing of models or of the accept rule.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Drafter, Noise, TargetOutput
from draftwood.sampling.history import History
from draftwood.sampling.sampler import Sampler
from draftwood.tree import TokenTree


class TreeDistributions:
    """p after each node of a tree; a node costs nothing until it is asked about.

    Implements :class:`draftwood.protocols.Distributions`.

    Args:
        rows: the target's answer. Its logits' rows belong to the tree's nodes; a prefill, which
            keeps the last position's row only, is a tree of one node.
        tree: the drafted tree.
        sampler: the request's.
        history: prompt and committed tokens up to and including the root; it must not grow while
            this object is asked.
    """

    __slots__ = ("_argmax", "_asked", "_history", "_ids", "_length", "_logits", "_sampler", "_tree")

    def __init__(
        self, rows: TargetOutput, tree: TokenTree, sampler: Sampler, history: History
    ) -> None:
        self._logits = rows.logits
        # The argmax may cover a whole prompt where the logits have its last position only.
        self._argmax = rows.argmax[len(rows.argmax) - rows.logits.shape[0] :]
        self._tree = tree
        self._sampler = sampler
        self._history = history
        self._length = len(history)
        self._ids = history.view()  # for processors that do not read it
        self._asked: set[int] = set()
        if sampler.stateful:
            sampler.settle(self._ids)

    def draw(self, node: int, noise: Noise) -> int:
        """A token drawn from p, at temperature 0 the argmax; never one of probability zero.

        Raises:
            DraftwoodError: the processors left no token to choose, or the row is not numbers.
        """
        if self._sampler.plain:
            return self._plain_argmax(node)
        if not self._sampler.do_sample:
            return self._argmax_of(node)
        return noise.choose(int(self._tree.depths[node]), self.probabilities([node])[0])

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """p as float32 ``[n, V]`` on the logits' device; one-hot at temperature 0.

        Raises:
            DraftwoodError: the processors left no token to choose, or a row is not numbers.
        """
        if not self._sampler.do_sample:
            best = map(self._plain_argmax if self._sampler.plain else self._argmax_of, nodes)
            p = torch.zeros((len(nodes), self._logits.shape[1]), device=self._logits.device)
            p[range(len(nodes)), list(best)] = 1
            return p
        p = torch.softmax(self._scores(nodes), dim=-1)
        # One bad score makes the whole softmax NaN.
        for node, share in zip(nodes, p[:, 0].tolist(), strict=True):
            if math.isnan(share):
                raise self._emptied(node)
        return p

    def _plain_argmax(self, node: int) -> int:
        found = int(self._argmax[node])
        if found < 0:
            raise self._emptied(node)
        return found

    def _argmax_of(self, node: int) -> int:
        scores = self._scores([node])[0]
        found = int(scores.argmax())
        if not float(scores[found]) > -math.inf:
            raise self._emptied(node)
        return found

    def _emptied(self, node: int) -> DraftwoodError:
        place = self._length + int(self._tree.depths[node])
        if bool(self._row(node).isnan().any()):
            return DraftwoodError(
                f"the model's logits are not numbers at position {place}: check its weights, and "
                "load it in float32 or bfloat16 if it overflows float16"
            )
        return DraftwoodError(
            f"no token can follow at position {place}: its scores are all -inf or not numbers; "
            "ban fewer tokens or check the logits processors"
        )

    def _scores(self, nodes: Sequence[int]) -> torch.Tensor:
        if len(self._history) != self._length:
            raise DraftwoodError("the history grew; ask a tree's distributions before committing")
        if self._sampler.reads_history:
            return torch.cat([self._path_scores(node) for node in nodes])
        rows = self._row(nodes[0]) if len(nodes) == 1 else self._logits[list(nodes)]
        return self._sampler.scores(self._ids, rows)

    def _path_scores(self, node: int) -> torch.Tensor:
        if self._sampler.stateful and node not in self._asked:
            self._asked.add(node)
            parent = int(self._tree.parents[node])
            if parent >= 0 and parent not in self._asked:
                self._path_scores(parent)
        input_ids = self._history.view(self._tree.path_tokens(node)).to(self._logits.device)
        return self._sampler.scores(input_ids, self._row(node))

    def _row(self, node: int) -> torch.Tensor:
        return self._logits[node : node + 1]


class TreeProposals:
    """q at the sampled nodes of a tree.

    Implements :class:`draftwood.protocols.Proposals`.

    Args:
        drafters: by source name.
        slot: where they keep the request.
        tree: the drafted tree.
    """

    __slots__ = ("_drafters", "_slot", "_tree")

    def __init__(self, drafters: Mapping[str, Drafter], slot: int, tree: TokenTree) -> None:
        self._drafters = drafters
        self._slot = slot
        self._tree = tree

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """q as float32 ``[n, V]`` on the target's device, earlier siblings still in."""
        if len(nodes) == 1:
            [node] = nodes
            handle = int(self._tree.q_rows[node])
            return self._drafters[self._tree.sources[node]].proposals(self._slot, [handle])
        sources = [self._tree.sources[node] for node in nodes]
        handles = self._tree.q_rows[list(nodes)]
        parts, order = [], []
        for source in dict.fromkeys(sources):
            members = [i for i, name in enumerate(sources) if name == source]
            rows = handles[members].tolist()
            parts.append(self._drafters[source].proposals(self._slot, rows))
            order += members
        if len(parts) == 1:
            return parts[0]
        found = torch.cat(parts)
        return found[torch.tensor(order).argsort().to(found.device)]
