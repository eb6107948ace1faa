"""Branch widths along a spine: GOOSE Proposition 2 (Eq. 2), Algorithm 1 and the optimum.

The objective is sum_i entry_i phi(w_i), separable and concave, with `entry` from
`break_probabilities` (Eq. 1) or `exit_probabilities` (tip included). The constant factor 1 + ell
does not change the optimum, so no function takes the branch depth.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor, log, log1p

import numpy as np
from numpy.typing import NDArray

from draftwood.lab.theory.yields import AcceptanceRates, FloatArray, check_count, check_probability

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NodeSplit:
    """Division of the budget by Algorithm 1, lines 1-3 and 10.

    `spine` is b_s, `root` b_r, `shared` b_l, and `per_node` the a_i of spine nodes 1..b_s (the tip
    is the last). `spine + root + shared` is the whole budget; the floors leave
    `shared - sum(per_node)` nodes for step 4.
    """

    spine: int
    root: int
    shared: int
    per_node: tuple[int, ...]


def eq2_allocation(spine_length: int, branches: int, rates: AcceptanceRates) -> FloatArray:
    """GOOSE Eq. 2 as printed: w_i = w_0 - i * slope with sum(w) = `branches`; float64 [m].

    The slope, branches lost per level of depth, is ln p_s / ln(1 - p_t). Deep entries may be
    negative. Then the result is no allocation, and Eq. 2 is not the optimum. ValueError unless both
    rates lie strictly between 0 and 1, where Eq. 2 is defined.
    """
    check_count("spine_length", spine_length, 1)
    check_count("branches", branches, 0)
    if not (0.0 < rates.p_s < 1.0 and 0.0 < rates.p_t < 1.0):
        raise ValueError("Eq. 2 needs 0 < p_s < 1 and 0 < p_t < 1; use greedy_allocation instead.")
    slope = log(rates.p_s) / log1p(-rates.p_t)
    centred = (spine_length - 1) / 2.0 - np.arange(spine_length, dtype=np.float64)
    return branches / spine_length + slope * centred


def largest_remainder(widths: FloatArray, branches: int) -> IntArray:
    """Round non-negative `widths` that sum to `branches` to integers with the same sum; int64 [m].

    Every entry is floored, then the largest fractional parts get one more each, shallower first
    on ties. ValueError when the widths are negative or sum to something else.
    """
    if np.any(widths < 0.0) or abs(float(widths.sum()) - branches) > 1e-6 * max(1, branches):
        raise ValueError(f"The widths must be non-negative and sum to {branches}.")
    # A whole number that lost its last bit must not be rounded down.
    floors = np.floor(widths + 1e-9)
    missing = branches - int(floors.sum())
    order = np.argsort(-np.round(widths - floors, 9), kind="stable")
    floors[order[:missing]] += 1.0
    return floors.astype(np.int64)


def clipped_allocation(spine_length: int, branches: int, rates: AcceptanceRates) -> IntArray:
    """Eq. 2 made feasible: clip at 0, scale back to the budget, round; int64 [m].

    Optimal if nothing was clipped; otherwise generally not (docs/theory.md has the loss).
    """
    clipped = np.maximum(eq2_allocation(spine_length, branches, rates), 0.0)
    total = float(clipped.sum())
    return largest_remainder(clipped * (branches / total) if total else clipped, branches)


def greedy_allocation(entry: FloatArray, branches: int, p_t: float) -> IntArray:
    """The integer optimum: each branch goes to the node where it adds most; int64, as `entry`.

    One more branch at node i adds entry_i (1 - p_t)^{w_i} p_t, which falls with w_i, so taking the
    largest gain `branches` times is optimal. Ties go to the earlier node.
    """
    check_count("branches", branches, 0)
    check_probability("p_t", p_t)
    if entry.ndim != 1 or not entry.size:
        raise ValueError("entry must be a vector with one probability per branching point.")
    widths = np.zeros(entry.shape, dtype=np.int64)
    gains = entry * p_t
    for _ in range(branches):
        best = int(np.argmax(gains))
        widths[best] += 1
        gains[best] *= 1.0 - p_t
    return widths


def harmonic_allocation(spine_length: int, branches: int) -> IntArray:
    """Algorithm 1, line 10: a_i = floor(b_l (1/i) / H_m) for i = 1..m; int64 [m].

    In exact arithmetic, because floats put b_l / (i H) just below a whole number that it equals.
    The floors leave up to m - 1 branches unspent.
    """
    check_count("spine_length", spine_length, 1)
    check_count("branches", branches, 0)
    harmonic = sum((Fraction(1, i) for i in range(1, spine_length + 1)), Fraction(0))
    shares = [floor(branches / (i * harmonic)) for i in range(1, spine_length + 1)]
    return np.asarray(shares, dtype=np.int64)


def algorithm1_split(
    budget: int, match_length: int, spine_ratio: float, branch_ratio: float = 0.5
) -> NodeSplit:
    """Algorithm 1, lines 1-3 and 10, for `budget` drafted nodes (the paper's B is budget + 1).

    `spine_ratio` is r, `branch_ratio` rho. Ratios are read as the decimals they print as, so that
    floor(B r) does not depend on the last bit of a float.
    """
    check_count("budget", budget, 0)
    check_count("match_length", match_length, 0)
    check_probability("spine_ratio", spine_ratio)
    check_probability("branch_ratio", branch_ratio)
    spine = min(match_length, floor((budget + 1) * Fraction(str(spine_ratio))), budget)
    root = floor((budget - spine) * (1 - Fraction(str(branch_ratio))))
    shared = budget - spine - root
    per_node = harmonic_allocation(spine, shared) if spine else np.zeros(0, dtype=np.int64)
    return NodeSplit(spine, root, shared, tuple(int(share) for share in per_node))
