"""Tries the children of many nodes together, with one hand-over of what comes of it.

For devices where a call costs more than the arithmetic: a loop over the sibling number, the rest is
tensor work on p's device and in p's type. :mod:`draftwood.verifiers._residuals.sequential` does
less of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from draftwood.protocols import Proposals
from draftwood.tree import Draw
from draftwood.verifiers._residuals.siblings import Siblings, rows_of


@dataclass(frozen=True, eq=False, slots=True)
class Batched:
    """Implements :class:`draftwood.verifiers._residuals.Tested` for one node."""

    known: ClassVar = True

    chances: Sequence[float]
    mass: float
    residual: torch.Tensor


def try_together(spots: Sequence[Siblings], p: Sequence[torch.Tensor]) -> list[Batched]:
    """Try the children of all spots, at least one, ``p`` being ``[V]`` each."""
    # Most children first: those that still have a child to try are always the first rows.
    order = sorted(range(len(spots)), key=lambda i: -len(spots[i].children))
    ranked = [spots[i] for i in order]
    rounds, asked = _rounds(ranked)
    residual = torch.stack([p[i] for i in order])
    proposals = _Rows(torch.stack(rows_of(asked)).to(residual) if asked else residual)
    reach = residual.new_tensor([spot.reach for spot in ranked])[:, None]
    weight, rest = torch.ones_like(reach), 1 - reach
    residual *= reach
    numbers = residual.new_zeros(len(rounds) + 1, len(ranked), 1)
    for trial, chance in zip(rounds, numbers, strict=False):
        n = len(trial.tokens)
        R, W = residual[:n], weight[:n]
        token = torch.tensor(trial.tokens).to(residual.device)[:, None]
        wanted, offered = R.gather(1, token), W
        if max(trial.rows) >= 0:
            Q, scale = proposals.take(trial, W)
            offered = Q.gather(1, token).mul_(scale)
            if min(trial.rows) < 0:
                drawn = torch.tensor([row >= 0 for row in trial.rows]).to(residual.device)[:, None]
                scale, offered = scale * drawn, offered.where(drawn, W)
            R.addcmul_(Q, scale, value=-1).clamp_min_(0)
        R.scatter_(1, token, (wanted - offered).clamp_min_(0))
        torch.minimum(wanted, offered, out=chance[:n]).div_(offered).nan_to_num_(0)
        mass = torch.sum(R, 1, keepdim=True, out=numbers[-1, :n])
        weight = mass + rest[:n]
    *chances, masses = numbers[:, :, 0].tolist()
    found: dict[int, Batched] = {}
    for row, i in enumerate(order):
        own = [chance[row] for chance in chances[: len(spots[i].children)]]
        found[i] = Batched(own, masses[row], residual[row])
    return [found[i] for i in range(len(spots))]


@dataclass(frozen=True, slots=True)
class _Round:
    """One child of every spot that has so many; the lists run over those spots.

    Attributes:
        tokens: the children's.
        rows: their rows of q; -1 for a child that was not drawn.
        gone: the token that an earlier sibling took out of the row just before; -1 if none did.
    """

    tokens: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)


def _rounds(spots: Sequence[Siblings]) -> tuple[list[_Round], list[tuple[Proposals, int]]]:
    """What is tried when, and a node for each row of q, the rows in order of their first use."""
    rounds: list[_Round] = []
    asked: list[tuple[Proposals, int]] = []
    rows: dict[tuple[int, str, int, int], int] = {}
    taken: dict[int, int] = {}
    for j in range(len(spots[0].children)):
        trial = _Round()
        for i, spot in enumerate(spots):
            if len(spot.children) <= j:
                break
            tree, child = spot.case.tree, spot.children[j]
            token, draw, row = int(tree.tokens[child]), int(tree.draws[child]), -1
            trial.tokens.append(token)
            if draw != Draw.ONE_HOT:
                key = (i, tree.sources[child], int(tree.q_rows[child]), draw)
                row = rows.setdefault(key, len(asked))
                if row == len(asked):
                    asked.append((spot.case.q, child))
            trial.rows.append(row)
            trial.gone.append(taken.get(row, -1))
            if draw == Draw.WITHOUT_REPLACEMENT:
                taken[row] = token
        rounds.append(trial)
    return rounds, asked


class _Rows:
    """Rows of q, from which drawn tokens are taken out one by one: ``table`` is overwritten."""

    __slots__ = ("_table",)

    def __init__(self, table: torch.Tensor) -> None:
        self._table = table

    def take(self, trial: _Round, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Q of a round's children but for a factor, ``[n, V]``, and ``weight`` times that factor.

        A row that is whole sums to 1 by definition.
        """
        n, device = len(trial.rows), self._table.device
        again = [i for i, token in enumerate(trial.gone) if token >= 0]
        if again:
            self._table[[trial.rows[i] for i in again], [trial.gone[i] for i in again]] = 0
        if trial.rows == list(range(n)):
            found = self._table[:n]
        else:
            found = self._table[[max(row, 0) for row in trial.rows]]
        if not again:
            return found, weight
        left = found.sum(1, keepdim=True)
        if len(again) < n:
            left = left.where(torch.tensor(trial.gone).to(device)[:, None] >= 0, 1)
        # Where nothing is left the child is a zero-probability pick, which takes no part.
        return found, (weight / left).nan_to_num_(0, posinf=0)
