"""What is left of p at a node once its children have been tried, for many nodes at a time.

The arithmetic that the verifiers of sampled trees share. Knows nothing of which node is accepted,
and makes no random decision but the bonus.

A node v is reached with probability P(v). Its children c_1, c_2, .. were drawn in this order, c_j
from a distribution Q_j that may depend on the earlier ones. They are tried in turn::

    R = P(v) p(.|v);  W = 1
    for each child c_j:  P(c_j) = min(1, R[c_j] / (W Q_j[c_j]))       (0 where Q_j[c_j] = 0)
                         R = max(R - W Q_j, 0);  W = sum R + 1 - P(v)

This is what Algorithm 3 of "Traversal Verification for Speculative Tree Decoding" does to a node
and its children, written so that it can run from the root down. With P(v) = 1 it is recursive
rejection sampling, R / W being the residual distribution.

Q_j is q where the child was drawn with replacement, and one-hot where it was not drawn at all. R is
kept, not rebuilt from a few scalars a node: children of one node may come from several rows of q.

Without replacement it is q over the tokens that are left, divided by their sum, which is summed
anew for each child: one minus the sum of the drawn tokens loses every digit where q is peaked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from draftwood.protocols import Case, Distributions, Proposals, Verdict
from draftwood.tree import Draw, TokenTree
from draftwood.walking import walk


def judge(cases: Sequence[Case], rule: Callable[[list[Case]], list[Verdict]]) -> list[Verdict]:
    """Verdicts by ``rule`` on the trees with sampled nodes, by the target walk on the others.

    Where nothing was sampled, no rule accepts more than the walk.
    """
    sampled = [bool((case.tree.draws != Draw.ONE_HOT).any()) for case in cases]
    found = iter(rule([case for case, yes in zip(cases, sampled, strict=True) if yes]))
    return [next(found) if yes else walk(case) for case, yes in zip(cases, sampled, strict=True)]


def children_of(tree: TokenTree) -> list[list[int]]:
    """The children of every node, in drawing order."""
    found: list[list[int]] = [[] for _ in range(len(tree))]
    for node, parent in enumerate(tree.parents.tolist()[1:], start=1):
        found[parent].append(node)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Spot:
    """A node whose children, one at least, are to be tried, and P(node), which is above 0."""

    case: Case
    node: int
    children: Sequence[int]
    reach: float


@dataclass(frozen=True, eq=False, slots=True)
class Tried:
    """What came of it.

    Attributes:
        chances: P of each child, in drawing order.
        mass: sum of the residual.
        residual: ``[V]``, R after the last child, not normalised.
    """

    chances: Sequence[float]
    mass: float
    residual: torch.Tensor

    def kept(self, reach: float) -> float:
        """h: probability to keep the node, reached with P = ``reach``, if no child is accepted.

        In this form a tiny mass cannot take it above 1, nor divide it by zero.
        """
        return self.mass / (self.mass + (1 - reach)) if self.mass > 0 else 0.0


def bonus(case: Case, node: int, tried: Tried | None) -> int:
    """The token after the last accepted node: drawn from what its children, if any, left of p."""
    # Only rounding leaves nothing at all: in exact arithmetic such a node is never the last one.
    if tried is None or tried.mass == 0:
        return case.p.draw(node, case.noise)
    return case.noise.choose(int(case.tree.depths[node]), tried.residual)


def rows_of(asked: Sequence[tuple[Distributions | Proposals, int]]) -> torch.Tensor:
    """Distributions at nodes of several trees, ``[n, V]``; each tree is asked once."""
    places: dict[int, list[int]] = {}
    for i, (tree, _) in enumerate(asked):
        places.setdefault(id(tree), []).append(i)
    parts = [asked[own[0]][0].probabilities([asked[i][1] for i in own]) for own in places.values()]
    if len(parts) == 1:
        return parts[0]
    rows = torch.cat(parts)
    order = [i for own in places.values() for i in own]
    if order == list(range(len(order))):
        return rows
    return rows[torch.tensor(order).argsort().to(rows.device)]


def try_children(spots: Sequence[Spot]) -> list[Tried]:
    """Try the children of all spots, at least one, together.

    A loop over the sibling number; the rest is tensor work on p's device and in p's type. The
    numbers are handed to the host once.
    """
    # Most children first: those that still have a child to try are always the first rows.
    order = sorted(range(len(spots)), key=lambda i: -len(spots[i].children))
    ranked = [spots[i] for i in order]
    rounds, asked = _rounds(ranked)
    p = rows_of([(spot.case.p, spot.node) for spot in ranked])
    proposals = _Rows(rows_of(asked).to(p.dtype) if asked else p)
    reach = p.new_tensor([spot.reach for spot in ranked])[:, None]
    residual, weight, rest = p * reach, torch.ones_like(reach), 1 - reach
    numbers = p.new_zeros(len(rounds) + 1, len(ranked), 1)
    for trial, chance in zip(rounds, numbers, strict=False):
        n = len(trial.tokens)
        R, W = residual[:n], weight[:n]
        token = torch.tensor(trial.tokens).to(p.device)[:, None]
        wanted, offered = R.gather(1, token), W
        if max(trial.rows) >= 0:
            Q, scale = proposals.take(trial, W)
            offered = Q.gather(1, token).mul_(scale)
            if min(trial.rows) < 0:
                drawn = torch.tensor([row >= 0 for row in trial.rows]).to(p.device)[:, None]
                scale, offered = scale * drawn, offered.where(drawn, W)
            R.addcmul_(Q, scale, value=-1).clamp_min_(0)
        R.scatter_(1, token, (wanted - offered).clamp_min_(0))
        torch.minimum(wanted, offered, out=chance[:n]).div_(offered).nan_to_num_(0)
        mass = torch.sum(R, 1, keepdim=True, out=numbers[-1, :n])
        weight = mass + rest[:n]
    *chances, masses = numbers[:, :, 0].tolist()
    found: dict[int, Tried] = {}
    for row, i in enumerate(order):
        own = [chance[row] for chance in chances[: len(spots[i].children)]]
        found[i] = Tried(own, masses[row], residual[row])
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


def _rounds(spots: Sequence[Spot]) -> tuple[list[_Round], list[tuple[Proposals, int]]]:
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
    """Rows of q, from which drawn tokens are taken out one by one."""

    __slots__ = ("_owned", "_table")

    def __init__(self, table: torch.Tensor) -> None:
        self._table = table
        self._owned = False

    def take(self, trial: _Round, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Q of a round's children but for a factor, ``[n, V]``, and ``weight`` times that factor.

        A row that is whole sums to 1 by definition.
        """
        n, device = len(trial.rows), self._table.device
        again = [i for i, token in enumerate(trial.gone) if token >= 0]
        if again:
            if not self._owned:
                self._table, self._owned = self._table.clone(), True
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
