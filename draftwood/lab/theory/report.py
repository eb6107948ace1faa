"""The tables of docs/theory.md: `python -m draftwood.lab.theory.report` prints them as Markdown.

Deterministic and done in a second or two, so that a test can compare the document with it.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from draftwood.lab.theory.allocation import (
    algorithm1_split,
    clipped_allocation,
    eq2_allocation,
    greedy_allocation,
    harmonic_allocation,
)
from draftwood.lab.theory.dominance import (
    best_isotropic_yield,
    best_single_rate_yield,
    best_two_source_yield,
    paid_spine_yield,
    printed_spine_yield,
)
from draftwood.lab.theory.nondegradation import non_degradation, spine_ratio
from draftwood.lab.theory.rated_tree import (
    RatedTree,
    enumerated_longest_yield,
    enumerated_yield,
    spine_tree,
)
from draftwood.lab.theory.yields import (
    AcceptanceRates,
    break_probabilities,
    eq1_bound,
    exit_probabilities,
    synergy,
)

BRANCH_DEPTH = 6
LONGEST_MATCH = 20
GRID_SPINES = (1, 2, 3, 5, 9, 18, 20)
GRID_BRANCHES = (1, 2, 5, 10, 20, 29, 50)
GRID_P_S = (0.1, 0.21, 0.3, 0.5, 0.6, 0.8, 0.95)
GRID_P_T = (0.01, 0.033, 0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True, slots=True)
class AllocationLoss:
    """Loss of an allocation against the integer optimum, as a share of Eq. 1's yield."""

    spine_length: int
    branches: int
    rates: AcceptanceRates
    was_clipped: bool
    clipped: float
    harmonic: float


def allocation_loss(spine_length: int, branches: int, rates: AcceptanceRates) -> AllocationLoss:
    """Loss of rounded Eq. 2 and of the harmonic rule on Eq. 1 (D = 6)."""

    def total(widths: Iterable[int]) -> float:
        return eq1_bound(spine_length, list(widths), rates, BRANCH_DEPTH)

    entry = break_probabilities(spine_length, rates.p_s)
    best = total(greedy_allocation(entry, branches, rates.p_t))
    return AllocationLoss(
        spine_length,
        branches,
        rates,
        was_clipped=bool(eq2_allocation(spine_length, branches, rates).min() < 0),
        clipped=1 - total(clipped_allocation(spine_length, branches, rates)) / best,
        harmonic=1 - total(harmonic_allocation(spine_length, branches)) / best,
    )


def allocation_grid() -> list[AllocationLoss]:
    """`allocation_loss` on every setting of the GRID constants with p_s > p_t."""
    return [
        allocation_loss(spine_length, branches, AcceptanceRates(p_s, p_t))
        for spine_length, branches, p_s, p_t in product(
            GRID_SPINES, GRID_BRANCHES, GRID_P_S, GRID_P_T
        )
        if p_s > p_t
    ]


def bound_table() -> list[str]:
    """Proposition 1: Eq. 1 and exact enumeration, p_s = p_t = 1/2, D = 2."""
    rates = AcceptanceRates(0.5, 0.5)
    one, two = spine_tree(1, [1], rates, 2), spine_tree(1, [2], rates, 2)
    forked = RatedTree((*one.parents, 2), (*one.rates, rates.p_t))
    trees: list[tuple[str, RatedTree, list[int]]] = [
        ("m = 1, one branch of 2 tokens", one, [1]),
        ("m = 1, two branches of 2 tokens", two, [2]),
        ("as the first, its branch forked", forked, [1]),
        ("m = 1, one branch, leaf only (budget as printed)", spine_tree(1, [1], rates), [1]),
    ]
    return _table(
        "tree | nodes | Eq. 1 | walk | longest path",
        (
            f"{name} | {tree.drafted} | {eq1_bound(1, widths, rates, 2):.4f} | "
            f"{enumerated_yield(tree):.4f} | {enumerated_longest_yield(tree):.4f}"
            for name, tree, widths in trees
        ),
    )


def allocation_table() -> list[str]:
    """Proposition 2: the loss of rounded Eq. 2 and of the harmonic rule over the grid."""
    grid = allocation_grid()
    groups = (
        ("Eq. 2 needs no clipping", [loss for loss in grid if not loss.was_clipped]),
        ("Eq. 2 has negative widths", [loss for loss in grid if loss.was_clipped]),
        ("all", grid),
    )
    rows = []
    for name, losses in groups:
        shares = np.array([(loss.clipped, loss.harmonic) for loss in losses])
        columns = np.stack([shares.mean(axis=0), shares.max(axis=0)], axis=1)
        rows.append(" | ".join([name, str(len(losses)), *map(_percent, columns.ravel().tolist())]))
    return _table("settings | count | Eq. 2 mean | Eq. 2 max | harmonic mean | harmonic max", rows)


def split_table() -> list[str]:
    """Algorithm 1's widths against the optimum for the same spine, B = 60, branches unextended."""
    rows = []
    for p_s, p_t in ((0.1, 0.033), (0.21, 0.033), (0.6, 0.05), (0.8, 0.05), (0.9, 0.03)):
        split = algorithm1_split(59, LONGEST_MATCH, spine_ratio(p_s))
        entry = exit_probabilities(split.spine, p_s)
        spine = eq1_bound(split.spine, [0] * split.spine, AcceptanceRates(p_s, p_t), BRANCH_DEPTH)
        own = (split.root, *split.per_node)
        best = greedy_allocation(entry, 59 - split.spine, p_t).tolist()
        rows.append(
            f"{p_s:g} | {p_t:g} | {split.spine} | "
            f"{_widths(own)} | {spine + synergy(entry, own, p_t, 1):.3f} | "
            f"{_widths(best)} | {spine + synergy(entry, best, p_t, 1):.3f}"
        )
    return _table("p_s | p_t | m | Algorithm 1 | yield | optimum | yield", rows)


def dominance_table() -> list[str]:
    """Proposition 3: the best of each family, m up to 20."""
    rows = []
    for budget, p_t, ratio in product((10, 59, 100), (0.033, 0.1, 0.3), (1.05, 2.0, 6.0)):
        if ratio * p_t >= 1.0:
            continue
        rates = AcceptanceRates(ratio * p_t, p_t)
        spines = range(1, min(budget, LONGEST_MATCH) + 1)
        single = best_single_rate_yield(budget, p_t)
        paid = max(paid_spine_yield(budget, m, rates, BRANCH_DEPTH) for m in spines)
        printed = max(printed_spine_yield(budget, m, rates, BRANCH_DEPTH) for m in spines)
        rows.append(
            f"{budget} | {p_t:g} | {ratio:g} | {best_isotropic_yield(budget, p_t):.3f} | "
            f"{single:.3f} | {best_two_source_yield(budget, LONGEST_MATCH, rates):.3f} | "
            f"{_flag(paid, single)} | {_flag(printed, single)}"
        )
    return _table(
        "B | p_t | p_s/p_t | Iso | one rate | two rates | Eq. 1 paid | Eq. 1 unpaid", rows
    )


def degradation_table() -> list[str]:
    """Proposition 4: GOOSE's routes against either source alone, at true rates."""
    rows = []
    for budget, match, p_s, p_t in (
        (59, 7, 0.05, 0.033),
        (59, 7, 0.21, 0.033),
        (59, 7, 0.21, 0.2),
        (59, 20, 0.1, 0.033),
        (59, 20, 0.21, 0.033),
        (59, 20, 0.6, 0.033),
        (59, 20, 0.95, 0.033),
        (8, 7, 0.9, 0.033),
    ):
        found = non_degradation(budget, match, AcceptanceRates(p_s, p_t))
        rows.append(
            f"{budget} | {match} | {p_s:g} | {p_t:g} | {found.chain:.3f} | "
            f"{found.own_transition:.3f} | {found.transition:.3f} | {found.spine:.3f} | "
            f"{'bypass' if found.bypassed else 'tree'} | {found.margin:+.3f}"
        )
    return _table(
        "B | match | p_s | p_t | chain | Alg. 1 without match | best transitions | Alg. 1 | "
        "route | margin",
        rows,
    )


def report() -> str:
    """All tables, each under a heading naming its proposition; ends with a newline."""
    sections = (
        ("Table 1: Proposition 1, Eq. 1 against enumeration", bound_table()),
        (
            "Table 2: Proposition 2, loss of total yield against the integer optimum",
            allocation_table(),
        ),
        ("Table 3: Algorithm 1's widths against the optimum", split_table()),
        ("Table 4: Proposition 3, best yield of each family", dominance_table()),
        ("Table 5: Proposition 4, routes against either source alone", degradation_table()),
    )
    return "\n".join("\n".join((f"### {title}", "", *lines, "")) for title, lines in sections)


def _table(head: str, rows: Iterable[str]) -> list[str]:
    return [f"| {head} |", "|" + "---|" * len(head.split("|")), *(f"| {row} |" for row in rows)]


def _percent(share: float) -> str:
    return f"{100 * abs(share) if abs(share) < 5e-5 else 100 * share:.2f} %"


def _flag(value: float, other: float) -> str:
    return f"{value:.3f}" if value > other else f"**{value:.3f}**"


def _widths(widths: Sequence[int]) -> str:
    """Widths from the root to the tip, with runs of zeros shortened."""
    shown = [str(width) for width in widths]
    first_zero = next((i for i, width in enumerate(widths) if not any(widths[i:-1])), len(shown))
    if len(shown) - first_zero > 2:
        shown[first_zero:-1] = ["0 .."]
    return " ".join(shown)


if __name__ == "__main__":
    sys.stdout.write(report())
