"""GOOSE Proposition 3: the best single-rate trees, the best two-rate trees, and trees of Eq. 1.

Exact optima by dynamic programming under the independent acceptance model. Budgets count drafted
nodes, root excluded; yields are tokens per step, bonus included. `nondegradation.py` has the shape
that GOOSE chooses at run time.
"""

import numpy as np

from draftwood.lab.theory.allocation import greedy_allocation
from draftwood.lab.theory.rated_tree import expected_yield, isotropic
from draftwood.lab.theory.yields import (
    AcceptanceRates,
    FloatArray,
    break_probabilities,
    check_count,
    check_probability,
    eq1_bound,
)


def isotropic_yield(budget: int, fan_out: int, p: float) -> float:
    """Yield of Iso(k), the complete k-ary tree truncated breadth-first at `budget` nodes."""
    return expected_yield(isotropic(budget, fan_out, p))


def best_isotropic_yield(budget: int, p: float) -> float:
    """Yield of the best Iso(k) over k = 1..budget, the narrowest reading of Proposition 3."""
    check_count("budget", budget, 1)
    return max(isotropic_yield(budget, fan_out, p) for fan_out in range(1, budget + 1))


def best_single_rate_yield(budget: int, p: float, max_children: int | None = None) -> float:
    """Yield of the best tree of `budget` nodes at one rate (Sequoia's search, uniform rate).

    F(n) = max_a p (1 + F(a - 1)) + (1 - p) F(n - a): the first sibling and its subtree take a of
    the n nodes, the later siblings the rest. `max_children` caps the fan-out (GOOSE's K).
    """
    return 1.0 + float(_single_rate_values(budget, p, max_children)[-1])


def best_two_source_yield(budget: int, spine_length: int, rates: AcceptanceRates) -> float:
    """Yield of the best tree of `budget` nodes with a spine of *up to* `spine_length` tokens.

    At each spine node either the spine ends, or its next token is tested first and the remaining
    budget is the best forest of transition tokens. For this family, not for that of Eq. 1,
    Proposition 3 is a theorem: for p_s > p_t, p_t < 1, at least one node and a non-empty spine, the
    yield exceeds `best_single_rate_yield` (docs/theory.md).
    """
    check_count("spine_length", spine_length, 0)
    forest = _single_rate_values(budget, rates.p_t, None)
    values = forest
    for _ in range(min(spine_length, budget)):
        deeper, values = values, forest.copy()
        for n in range(1, budget + 1):
            taken = rates.p_s * (1.0 + deeper[:n]) + (1.0 - rates.p_s) * forest[n - 1 :: -1]
            values[n] = max(values[n], float(taken.max()))
    return 1.0 + float(values[-1])


def printed_spine_yield(
    budget: int, spine_length: int, rates: AcceptanceRates, branch_depth: int
) -> float:
    """Eq. 1 at its best widths under the paper's budget m + sum(w) <= B.

    The (1 + ell) is counted although the budget does not include its nodes, so that trees of
    `budget` nodes may not reach this yield. ValueError unless 1 <= m <= budget.
    """
    widths = greedy_allocation(
        break_probabilities(spine_length, rates.p_s), budget - spine_length, rates.p_t
    )
    return eq1_bound(spine_length, widths, rates, branch_depth)


def paid_spine_yield(
    budget: int, spine_length: int, rates: AcceptanceRates, branch_depth: int
) -> float:
    """Eq. 1 at its best widths if every node counts: m + length * sum(w) <= budget.

    The best over branch chains of 1..`branch_depth` tokens; this is the exact yield of
    `spine_tree` with those widths. ValueError unless 1 <= m <= budget.
    """
    entry = break_probabilities(spine_length, rates.p_s)
    yields: list[float] = []
    for length in range(1, branch_depth + 1):
        widths = greedy_allocation(entry, (budget - spine_length) // length, rates.p_t)
        yields.append(eq1_bound(spine_length, widths, rates, length))
    return max(yields)


def _single_rate_values(budget: int, p: float, max_children: int | None) -> FloatArray:
    """F(0..budget), float64 [budget + 1]: expected accepted tokens below a node with n nodes."""
    check_count("budget", budget, 0)
    check_probability("p", p)
    slots = max(budget, 1) if max_children is None else max_children
    check_count("max_children", slots, 1)
    slots = min(slots, max(budget, 1))
    best = np.zeros((slots + 1, budget + 1), dtype=np.float64)
    for n in range(1, budget + 1):
        first = p * (1.0 + best[slots, :n])
        best[1:, n] = (first + (1.0 - p) * best[:-1, n - 1 :: -1]).max(axis=1)
    return np.asarray(best[slots], dtype=np.float64)
