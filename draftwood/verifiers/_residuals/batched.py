"""The sibling test for many nodes at once, without the host.

For GPUs, where a call costs more than the arithmetic, and a wait more than a call. One loop runs
over the sibling number; all else is tensor work on p's device in p's dtype.
:mod:`draftwood.verifiers._residuals.sequential` does less arithmetic.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import downloaded, uploaded
from draftwood.protocols import Noise, Proposals
from draftwood.sampling.device_draws import ScoredRows, draw_rows
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.philox import signed
from draftwood.tree import Draw
from draftwood.verifiers._residuals.siblings import Siblings, rows_of


@dataclass(frozen=True, eq=False, slots=True)
class Batched:
    """The result for one node, computed.

    Attributes:
        probabilities: P of each child, in drawing order.
        mass: sum of R after the last child; NaN if no token can follow the node, and P is not 0.
        residual: R after the last child ``[V]``.
        token: the token drawn from R; None if it is not drawn yet.
    """

    known: ClassVar = True

    probabilities: Sequence[float]
    mass: float
    residual: torch.Tensor
    token: int | None

    @property
    def dead(self) -> bool:
        """Whether no token can follow the node."""
        return math.isnan(self.mass)


@dataclass(frozen=True, eq=False, slots=True)
class SubmittedTests:
    """Tests of the children of several nodes, which the device may still be running.

    Attributes:
        groups: the nodes, most children first.
        order: their places in the caller's order.
        numbers: ``[rounds + 1, n]``: in each row P of the next children, in the last one the mass.
        residual: ``[n, V]``.
        tokens: int64 ``[n]``, drawn from the residuals; None if they are not drawn here.
    """

    groups: Sequence[Siblings]
    order: Sequence[int]
    numbers: torch.Tensor
    residual: torch.Tensor
    tokens: torch.Tensor | None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """What the results need of the device."""
        return [self.numbers] if self.tokens is None else [self.numbers, self.tokens]

    def place(self, row: int, child: int) -> int:
        """Where P of a child of a group is among the flattened numbers."""
        return child * len(self.groups) + row


def submit(
    groups: Sequence[Siblings],
    p: Sequence[torch.Tensor],
    reaches: tuple[torch.Tensor, Sequence[int]] | None = None,
) -> SubmittedTests:
    """Begin to test the children of one or more nodes.

    Args:
        groups: the nodes.
        p: ``[V]`` for each.
        reaches: numbers of an earlier test, and for each node the place of its P there; None: P is
            1. Where P is 0, p may be no distribution.
    """
    # Most children first, so that the nodes with a child in a round are always the first rows.
    order = sorted(range(len(groups)), key=lambda i: -len(groups[i].children))
    ranked = [groups[i] for i in order]
    rounds, asked = _rounds(ranked)
    residual = torch.stack([p[i] for i in order])
    table = torch.stack(rows_of(asked)).to(residual) if asked else residual
    before, places = reaches if reaches is not None else (None, [0] * len(order))
    addresses = _addresses(ranked) if residual.device.type != "cpu" else None
    there_places, *sent = uploaded(
        [
            np.array([places[i] for i in order]),
            *(each for one in rounds for each in one.numbers()),
            *(addresses or ()),
        ],
        residual.device,
    )
    if before is None:
        reach = residual.new_ones(len(ranked), 1)
    else:
        reach = before.view(-1).index_select(0, there_places)[:, None]
    weight, rest = torch.ones_like(reach), 1 - reach
    residual *= reach
    numbers = residual.new_zeros(len(rounds) + 1, len(ranked), 1)
    for i, (current, probability) in enumerate(zip(rounds, numbers, strict=False)):
        n = len(current.tokens)
        R, W = residual[:n], weight[:n]
        there = _Sent(*sent[_PARTS * i : _PARTS * (i + 1)])
        token = there.tokens[:, None]
        wanted, offered = R.gather(1, token), W
        if max(current.rows) >= 0:
            Q, scale = _take(table, current, there, W)
            offered = Q.gather(1, token).mul_(scale)
            if min(current.rows) < 0:
                drawn = (there.rows >= 0)[:, None]
                scale, offered = scale * drawn, offered.where(drawn, W)
            R.addcmul_(Q, scale, value=-1).clamp_min_(0)
        R.scatter_(1, token, (wanted - offered).clamp_min_(0))
        torch.minimum(wanted, offered, out=probability[:n]).div_(offered).nan_to_num_(0)
        mass = torch.sum(R, 1, keepdim=True, out=numbers[-1, :n])
        weight = mass + rest[:n]
    tokens = None
    if addresses is not None:
        levels = torch.arange(len(ranked), device=residual.device)
        seeds, positions = sent[-2:]
        [tokens] = draw_rows([ScoredRows(residual.log(), seeds, positions, levels)])
    return SubmittedTests(ranked, order, numbers[:, :, 0], residual, tokens)


def read(submitted: Sequence[SubmittedTests]) -> list[list[Batched]]:
    """The results of tests, in the order of their groups, after one wait."""
    return results(submitted, downloaded([each for one in submitted for each in one.tensors]))


def results(
    submitted: Sequence[SubmittedTests], numbers: Sequence[NDArray[Any]]
) -> list[list[Batched]]:
    """The results of tests, in the order of their groups; ``numbers`` are all their tensors."""
    found = [*numbers]
    return [_results(one, found) for one in submitted]


def _results(submitted: SubmittedTests, found: list[NDArray[Any]]) -> list[Batched]:
    """The results of one test; takes its numbers from those that were found."""
    *probabilities, masses = found.pop(0).tolist()
    count = len(submitted.groups)
    tokens = [None] * count if submitted.tokens is None else found.pop(0).tolist()
    results: dict[int, Batched] = {}
    for row, (group, i) in enumerate(zip(submitted.groups, submitted.order, strict=True)):
        own = [probability[row] for probability in probabilities[: len(group.children)]]
        results[i] = Batched(own, masses[row], submitted.residual[row], tokens[row])
    return [results[i] for i in range(count)]


def _addresses(groups: Sequence[Siblings]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Seeds and positions of the tokens after the nodes; None with other random numbers."""
    found: list[tuple[int, int]] = []
    for siblings in groups:
        noise: Noise = siblings.case.noise
        if not isinstance(noise, RequestNoise):
            return None
        seed, position = noise.address(int(siblings.case.tree.depths[siblings.node]))
        found.append((signed(seed), position))
    seeds, positions = zip(*found, strict=True)
    return np.array(seeds), np.array(positions)


@dataclass(frozen=True, slots=True)
class _Round:
    """The j-th child of every node that has one; lists run over these nodes.

    Attributes:
        tokens: the children's tokens.
        rows: their rows of q; -1 for a child that was not sampled.
        gone: the token that the last earlier sibling removed from the row; -1 if none did.
    """

    tokens: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def numbers(self) -> list[NDArray[np.int64]]:
        """What is uploaded, see :class:`_Sent`."""
        tokens, rows, gone = (np.array(part) for part in (self.tokens, self.rows, self.gone))
        again = gone >= 0
        return [tokens, rows, gone, rows[again], gone[again]]


class _Sent(NamedTuple):
    """A round's numbers on the device, int64; the last two are those of ``gone`` that are tokens.

    Attributes:
        tokens: see :class:`_Round`.
        rows: likewise.
        gone: likewise.
        gone_rows: rows of q that lose a token first.
        gone_tokens: these tokens.
    """

    tokens: torch.Tensor
    rows: torch.Tensor
    gone: torch.Tensor
    gone_rows: torch.Tensor
    gone_tokens: torch.Tensor


_PARTS = len(_Sent._fields)


def _rounds(groups: Sequence[Siblings]) -> tuple[list[_Round], list[tuple[Proposals, int]]]:
    """The rounds, and a node for each row of q, in order of first use."""
    rounds: list[_Round] = []
    asked: list[tuple[Proposals, int]] = []
    rows: dict[tuple[int, str, int, int], int] = {}
    taken: dict[int, int] = {}
    for j in range(len(groups[0].children)):
        current = _Round()
        for i, siblings in enumerate(groups):
            if len(siblings.children) <= j:
                break
            tree, child = siblings.case.tree, siblings.children[j]
            token, draw, row = int(tree.tokens[child]), int(tree.draws[child]), -1
            current.tokens.append(token)
            if draw != Draw.ONE_HOT:
                key = (i, tree.sources[child], int(tree.q_rows[child]), draw)
                row = rows.setdefault(key, len(asked))
                if row == len(asked):
                    asked.append((siblings.case.q, child))
            current.rows.append(row)
            current.gone.append(taken.get(row, -1))
            if draw == Draw.WITHOUT_REPLACEMENT:
                taken[row] = token
        rounds.append(current)
    return rounds, asked


def _take(
    table: torch.Tensor, current: _Round, there: _Sent, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The unnormalised Q of a round's children, ``[n, V]``, and ``weight`` over its sum.

    Drawn tokens are removed from ``table``. A row without removed tokens sums to 1 by definition.
    """
    n = len(current.rows)
    if len(there.gone_rows):
        table.index_put_((there.gone_rows, there.gone_tokens), table.new_zeros(()))
    if current.rows == list(range(n)):
        found = table[:n]
    else:
        found = table.index_select(0, there.rows.clamp_min(0))
    if not len(there.gone_rows):
        return found, weight
    left = found.sum(1, keepdim=True)
    if len(there.gone_rows) < n:
        left = left.where(there.gone[:, None] >= 0, 1)
    # If nothing is left, the child has probability zero and takes no part.
    return found, (weight / left).nan_to_num_(0, posinf=0)
