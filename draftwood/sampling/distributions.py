"""p and q at the nodes of one request's tree: the only softmax over the target in decoding.

At each node, logits processors get the same token ids and scores as if the node's path had been
decoded token by token.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch

from draftwood.copies import uploaded
from draftwood.errors import DraftwoodError, GrammarError
from draftwood.protocols import Drafter, Noise, TargetOutput
from draftwood.sampling.history import History
from draftwood.sampling.kernel import draw_with_kernel, kernel_for
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.sampler import Sampler
from draftwood.sampling.tree_mask import TreeMask
from draftwood.tree import TokenTree


class TreeDistributions:
    """p after each node of a tree, computed when it is needed.

    Implements :class:`draftwood.protocols.Distributions`.

    Args:
        rows: the target output, one row of logits per node. A prefill, which keeps the last row
            only, is a tree of one node.
        tree: the drafted tree.
        sampler: the request's.
        history: prompt and committed tokens, the root included. It must not grow while this object
            is in use.
        mask: the tokens that the request's grammar allows; None without one.
        ends: tokens that end the text. What follows one in the tree is cut off, and logits
            processors of others, which ``generate`` does not call there, are not asked.
    """

    __slots__ = (
        "_argmax",
        "_drawn",
        "_ends",
        "_history",
        "_length",
        "_logits",
        "_mask",
        "_sampler",
        "_scored",
        "_tree",
    )

    def __init__(
        self,
        rows: TargetOutput,
        tree: TokenTree,
        sampler: Sampler,
        history: History,
        mask: TreeMask | None = None,
        ends: Collection[int] = (),
    ) -> None:
        self._mask = mask
        self._ends = () if sampler.by_rows else ends
        self._logits = rows.logits
        # After a prefill the argmax may cover the whole prompt, the logits the last position only.
        self._argmax = rows.argmax[len(rows.argmax) - rows.logits.shape[0] :]
        self._drawn = rows.drawn
        self._tree = tree
        self._sampler = sampler
        self._history = history
        self._length = len(history)
        self._scored: set[int] = set()
        if sampler.stateful:
            sampler.keep_path(history.view())

    @property
    def everywhere(self) -> bool:
        """Whether p may be asked after any node: no foreign processor is applied, and no argmax."""
        return self._sampler.do_sample and self._sampler.by_rows

    def draw(self, node: int, noise: Noise) -> int:
        """Draw a token from p, at temperature 0 the argmax; never one of probability zero.

        Raises:
            DraftwoodError: the processors left no token to choose, or the row holds a NaN.
        """
        if self._plain:
            return self._plain_argmax(node)
        if self._drawn is not None:
            return self._checked(node, int(self._drawn[node]))
        if not self._sampler.do_sample:
            return self._argmax_of(node)
        depth = int(self._tree.depths[node])
        if isinstance(noise, RequestNoise) and self._has_kernel:
            scores, filters = self._unfiltered(node), self._sampler.filters
            found = draw_with_kernel(scores, filters, *noise.address(depth))
            return self._checked(node, found)
        # Other noise, such as that of an enumeration, wants the weights.
        p = torch.softmax(self._scores([node]), dim=-1)[0]
        if math.isnan(p[0].item()):
            raise self._no_token_error(node)
        return noise.choose(depth, p)

    @property
    def _has_kernel(self) -> bool:
        return not self._sampler.stateful and kernel_for(self._logits)

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """p as float32 ``[n, V]`` on the logits' device; one-hot at temperature 0.

        A row is NaN where the processors left no token to choose, or raised an exception: the node
        may only be drafted, which is no reason to fail. :meth:`draw` says what is wrong.

        Raises:
            DraftwoodError: a processor cannot be applied to tokens that may be rejected.
        """
        if not self._sampler.do_sample:
            best = [
                int(self._argmax[node]) if self._plain else _best(self._scores_or_nan(node))
                for node in nodes
            ]
            p = torch.zeros((len(nodes), self._logits.shape[1]), device=self._logits.device)
            p[range(len(nodes)), best] = 1
            dead = [i for i, token in enumerate(best) if token < 0]
            if dead:
                p[dead] = math.nan
            return p
        if self._sampler.reads_history:
            scores = torch.cat([self._scores_or_nan(node) for node in nodes])
        else:
            scores = self._scores(nodes)
        # One NaN among the scores makes the whole softmax NaN.
        return torch.softmax(scores, dim=-1)

    @property
    def _plain(self) -> bool:
        return self._sampler.plain and self._mask is None

    def _plain_argmax(self, node: int) -> int:
        return self._checked(node, int(self._argmax[node]))

    def _checked(self, node: int, token: int) -> int:
        """The token after a node; an error if it is negative, as there is none."""
        if token < 0:
            raise self._no_token_error(node)
        return token

    def _argmax_of(self, node: int) -> int:
        return self._checked(node, _best(self._scores([node])))

    def _no_token_error(self, node: int) -> DraftwoodError:
        position = self._length + int(self._tree.depths[node])
        if bool(self._logits[node].isnan().any()):
            return DraftwoodError(
                f"the model's logits are not numbers at position {position}: check its weights, "
                "and load it in float32 or bfloat16 if it overflows float16"
            )
        complaint = "" if self._mask is None else self._mask.complaint(node)
        if complaint:
            return GrammarError(f"no token can follow at position {position}: {complaint}")
        return DraftwoodError(
            f"no token can follow at position {position}: its scores are all -inf or not numbers; "
            "ban fewer tokens or check the logits processors"
        )

    def _unfiltered(self, node: int) -> torch.Tensor:
        """Scores ``[V]`` before the sampler's filters; raw logits if nothing else is applied."""
        self._check_history()
        if self._sampler.only_filters or self._is_behind_end(node):
            return self._row(node)[0]
        input_ids = self._history.view(self._tree.path_tokens(node))
        return self._sampler.unfiltered(input_ids, self._row(node))[0]

    def _check_history(self) -> None:
        if len(self._history) != self._length:
            raise DraftwoodError("the history grew; ask a tree's distributions before committing")

    def _scores(self, nodes: Sequence[int]) -> torch.Tensor:
        self._check_history()
        if self._sampler.reads_history:
            return torch.cat([self._path_scores(node) for node in nodes])
        if len(nodes) == 1:
            rows = self._row(nodes[0])
        else:
            [places] = uploaded([np.array(nodes)], self._logits.device)
            rows = self._masked(self._logits.index_select(0, places), nodes)
        # The processors do not read the tokens.
        return self._sampler.scores(self._history.view(), rows)

    def _is_behind_end(self, node: int) -> bool:
        return bool(self._ends) and not set(self._tree.path_tokens(node)).isdisjoint(self._ends)

    def _path_scores(self, node: int) -> torch.Tensor:
        if self._is_behind_end(node):
            return self._row(node).float()
        if self._sampler.stateful and node not in self._scored:
            self._scored.add(node)
            parent = int(self._tree.parents[node])
            if parent >= 0 and parent not in self._scored:
                self._path_scores(parent)
        input_ids = self._history.view(self._tree.path_tokens(node)).to(self._logits.device)
        return self._sampler.scores(input_ids, self._row(node))

    def _scores_or_nan(self, node: int) -> torch.Tensor:
        """Scores ``[1, V]``, NaN if a processor raises an exception of its own."""
        try:
            return self._scores([node])
        except DraftwoodError:
            raise
        except Exception:  # noqa: BLE001 - foreign code
            return torch.full_like(self._logits[node : node + 1], math.nan, dtype=torch.float32)

    def _row(self, node: int) -> torch.Tensor:
        return self._masked(self._logits[node : node + 1], [node])

    def _masked(self, rows: torch.Tensor, nodes: Sequence[int]) -> torch.Tensor:
        return rows if self._mask is None else self._mask.masked(rows, nodes, -math.inf)


def _best(scores: torch.Tensor) -> int:
    """The argmax of ``[1, V]``; -1 if no token is possible."""
    found = int(scores.argmax())
    return found if float(scores[0, found]) > -math.inf else -1


class TreeProposals:
    """q at the sampled nodes of a tree.

    Implements :class:`draftwood.protocols.Proposals`.

    Args:
        drafters: by source name.
        slot: the request's.
        tree: the drafted tree.
        mask: the tokens that the request's grammar allows. Children that it does not are dropped
            from a drawing, so that the rest was drawn from q over the legal tokens.
    """

    __slots__ = ("_drafters", "_mask", "_slot", "_tree")

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        slot: int,
        tree: TokenTree,
        mask: TreeMask | None = None,
    ) -> None:
        self._drafters = drafters
        self._slot = slot
        self._tree = tree
        self._mask = mask

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """q as float32 ``[n, V]`` on the target's device; earlier siblings are not removed."""
        q = self._drawn_from(nodes)
        if self._mask is None:
            return q
        parents = [int(self._tree.parents[node]) for node in nodes]
        legal = self._mask.masked(q, parents, 0.0)
        return legal / legal.sum(dim=-1, keepdim=True)

    def _drawn_from(self, nodes: Sequence[int]) -> torch.Tensor:
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
        [places] = uploaded([np.argsort(order)], parts[0].device)
        return torch.cat(parts).index_select(0, places)
