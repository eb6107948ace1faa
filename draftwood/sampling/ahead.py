"""Draws after all nodes of a batch of trees, on the device, before the host has the output.

A node's random numbers depend on its depth and not on its path, so that the token after every node
can be drawn at once. The tokens reach the host together with the rest of a forward's output, and a
verifier that follows them waits for nothing more. What the draws need of the host is uploaded with
the forward's own numbers.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.protocols import Submitted
from draftwood.sampling.device_draws import ScoredRows, draw_rows
from draftwood.sampling.history import History
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.philox import signed
from draftwood.sampling.sampler import Sampler
from draftwood.sampling.tree_mask import TreeMask
from draftwood.tree import TokenTree


@dataclass(frozen=True)
class _Request:
    """A request whose tokens are drawn ahead.

    Attributes:
        index: in the batch.
        tree: the drafted tree.
        sampler: the request's.
        levels: the nodes of each depth; depths have no gaps.
        tokens: length of its history; 0 if the sampler does not read it.
        mask: the tokens that its grammar allows.
    """

    index: int
    tree: TokenTree
    sampler: Sampler
    levels: list[NDArray[np.int64]]
    tokens: int
    mask: TreeMask | None


class DrawsAhead:
    """The draws of one step."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = []
        self._requests: list[_Request] = []
        self._count = 0

    def add(
        self,
        tree: TokenTree,
        sampler: Sampler,
        history: History,
        noise: RequestNoise,
        mask: TreeMask | None = None,
    ) -> None:
        """Add the next request of the batch.

        It is left to the verifier if the argmax of its logits is its next token, or if a processor
        cannot be applied to several nodes at once.
        """
        index = self._count
        self._count += 1
        if (sampler.plain and mask is None) or not sampler.by_rows:
            return
        depths = tree.depths
        levels = [np.flatnonzero(depths == depth) for depth in range(int(depths.max()) + 1)]
        tokens = len(history) if sampler.reads_history else 0
        self._requests.append(_Request(index, tree, sampler, levels, tokens, mask))
        parts = self._parts
        if sampler.do_sample:
            seeds, positions = zip(*(noise.address(d) for d in range(len(levels))), strict=True)
            parts += [np.array([signed(seed) for seed in seeds]), np.array(positions), depths]
        if tokens:
            parts += [history.view()[0].numpy().copy(), *levels]
            parts += [
                np.array([tree.path_tokens(int(node)) for node in nodes], dtype=np.int64).ravel()
                for nodes in levels
            ]

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """What is to be uploaded, once all requests are added."""
        return np.concatenate(self._parts) if self._parts else np.empty(0, dtype=np.int64)

    @property
    def any(self) -> bool:
        """Whether tokens of some request are drawn."""
        return bool(self._requests)

    @torch.inference_mode()
    def draw(self, submitted: Submitted) -> list[torch.Tensor | None]:
        """The token after each node of each tree.

        Args:
            submitted: the forward over all trees, with :attr:`numbers`.

        Returns:
            int64 ``[n]`` for each tree, -1 where no token can follow; None if they are left to the
            verifier.
        """
        logits, taken = submitted.logits, _Taken(submitted.numbers)
        found: list[torch.Tensor | None] = [None] * self._count
        sampled: dict[int, ScoredRows] = {}
        for request in self._requests:
            places = None
            if request.sampler.do_sample:
                levels, n = len(request.levels), len(request.tree)
                places = taken.next(levels), taken.next(levels), taken.next(n)
            scores = _scores(request, logits[request.index], taken)
            if places is None:
                highest = scores.amax(dim=-1)
                tokens = scores.argmax(dim=-1).masked_fill_(~(highest > -torch.inf), -1)
                found[request.index] = tokens
            else:
                sampled[request.index] = ScoredRows(scores, *places)
        drawn = draw_rows(list(sampled.values()))
        for (index, rows), tokens in zip(sampled.items(), drawn, strict=True):
            found[index] = _possible(tokens, rows.scores)
        return found


def _possible(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Tokens ``[n]``, -1 for rows of scores without a finite maximum."""
    return tokens.masked_fill(~scores.amax(dim=-1).isfinite(), -1)


class _Taken:
    """Uploaded numbers, taken in the order in which they were added."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self._numbers, self._begin = numbers, 0

    def next(self, count: int) -> torch.Tensor:
        self._begin += count
        return self._numbers[self._begin - count : self._begin]


def _scores(request: _Request, logits: torch.Tensor, taken: _Taken) -> torch.Tensor:
    """Processed scores ``[n, V]`` after each node."""
    sampler = request.sampler
    if request.mask is not None:
        logits = request.mask.masked(logits, range(len(request.tree)), -torch.inf)
    if not request.tokens:
        return sampler.scores(taken.next(0)[None], logits)
    history = taken.next(request.tokens)
    nodes = [taken.next(len(level)) for level in request.levels]
    found = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    for depth, level in enumerate(nodes):
        path = taken.next(depth * len(level)).view(len(level), depth)
        ids = torch.cat([history.expand(len(level), -1), path], dim=1)
        found.index_copy_(0, level, sampler.scores(ids, logits.index_select(0, level)))
    return found
