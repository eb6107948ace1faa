"""Draws after all nodes of a batch of trees, on the device, before the host has the output.

A node's random numbers depend on its depth and not on its path, so that the token after every node
can be drawn at once. The tokens reach the host together with the rest of a forward's output, and a
verifier that follows them waits for nothing more. What the draws need of the host is uploaded with
the forward's own numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.kernels.gpu import draw_for
from draftwood.protocols import Submitted
from draftwood.sampling.history import History
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.philox import exponentials, signed
from draftwood.sampling.sampler import Sampler
from draftwood.tree import TokenTree

MOST = 1 << 24
"""Random numbers that tensor operations make at once, if one request needs no more; 128 MB, and
several times that on the way."""


@dataclass(frozen=True)
class _Request:
    """A request whose tokens are drawn ahead.

    Attributes:
        index: in the batch.
        tree: the drafted tree.
        sampler: the request's.
        levels: the nodes of each depth; depths have no gaps.
        tokens: length of its history; 0 if the sampler does not read it.
    """

    index: int
    tree: TokenTree
    sampler: Sampler
    levels: list[NDArray[np.int64]]
    tokens: int


class DrawsAhead:
    """The draws of one step."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = []
        self._requests: list[_Request] = []
        self._count = 0

    def add(self, tree: TokenTree, sampler: Sampler, history: History, noise: RequestNoise) -> None:
        """Add the next request of the batch.

        It is left to the verifier if the argmax of its logits is its next token, or if a processor
        cannot be applied to several nodes at once.
        """
        index = self._count
        self._count += 1
        if sampler.plain or not sampler.by_rows:
            return
        depths = tree.depths
        levels = [np.flatnonzero(depths == depth) for depth in range(int(depths.max()) + 1)]
        tokens = len(history) if sampler.reads_history else 0
        self._requests.append(_Request(index, tree, sampler, levels, tokens))
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
        sampled: list[_Scored] = []
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
            elif (kernel := draw_for(scores)) is not None:
                found[request.index] = _possible(kernel(scores, *places), scores)
            else:
                sampled.append(_Scored(request.index, scores, *places))
        for scored, noise in zip(sampled, _noises(sampled), strict=True):
            # The log of RequestNoise.choose's keys, but for the sum of the weights.
            keys = scored.scores - noise.index_select(0, scored.depths)
            found[scored.index] = _possible(keys.argmax(dim=-1), scored.scores)
        return found


@dataclass(frozen=True, eq=False)
class _Scored:
    """A request's nodes, scored.

    Attributes:
        index: of the request in the batch.
        scores: processed, ``[n, V]``.
        seeds: int64 ``[r]``, at each depth.
        positions: int64 ``[r]``, of the tokens after each depth.
        depths: int64 ``[n]``, of the nodes.
    """

    index: int
    scores: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor
    depths: torch.Tensor


def _possible(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Tokens ``[n]``, -1 for rows of scores without a finite maximum."""
    return tokens.masked_fill(~scores.amax(dim=-1).isfinite(), -1)


def _noises(sampled: Sequence[_Scored]) -> Iterator[torch.Tensor]:
    """Logs of the exponentials, float64 ``[r, V]`` for each request.

    They are made for as many requests at once as :data:`MOST` allows: that takes 400 operations.
    """
    begin = 0
    while begin < len(sampled):
        group, size = [sampled[begin]], sampled[begin].scores.shape[1]
        for each in sampled[begin + 1 :]:
            if sum(len(other.seeds) for other in (*group, each)) * size > MOST:
                break
            group.append(each)
        begin += len(group)
        seeds = torch.cat([each.seeds for each in group])
        positions = torch.cat([each.positions for each in group])
        made = exponentials(seeds, positions, size).log_()
        for each in group:
            yield made[: len(each.seeds)]
            made = made[len(each.seeds) :]


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
