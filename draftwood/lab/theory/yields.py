"""GOOSE's closed forms for the yield of a spine tree (Section 3 and Appendix E.1, Eq. 1).

The model: every drafted token is accepted independently, a context-matched (spine) token with
probability p_s and a transition (branch) token with probability p_t. All yields are tokens per
step, bonus included. `rated_tree.py` has explicit trees, `allocation.py` the choice of widths.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AcceptanceRates:
    """The two probabilities of the heterogeneous model (GOOSE, Section 3).

    `p_s` belongs to spine tokens, `p_t` to transition tokens. The paper assumes p_s > p_t; this
    class does not, so that the assumption can be tested. ValueError outside [0, 1].
    """

    p_s: float
    p_t: float

    def __post_init__(self) -> None:
        for name, value in (("p_s", self.p_s), ("p_t", self.p_t)):
            check_probability(name, value)


def check_probability(name: str, value: float) -> None:
    """Raise ValueError unless `value` lies in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}; give a probability between 0 and 1.")


def check_count(name: str, value: int, least: int) -> None:
    """Raise ValueError unless `value` is at least `least`."""
    if value < least:
        raise ValueError(f"{name} is {value}; give at least {least}.")


def extension_length(p_t: float, branch_depth: int) -> float:
    """Expected tokens after a branch's first one: ell = sum_{k=1}^{D-1} p_t^k (GOOSE, Section 3).

    `branch_depth` is the paper's D, counted from the branching point, so a branch is a chain of D
    tokens. Closed form p_t (1 - p_t^{D-1}) / (1 - p_t), continued to 0 at p_t = 0 and to D - 1 at
    p_t = 1. ValueError for a p_t outside [0, 1] or D < 1.
    """
    check_probability("p_t", p_t)
    check_count("branch_depth", branch_depth, 1)
    return _geometric_sum(p_t, branch_depth - 1)


def branch_success(widths: ArrayLike, p_t: float) -> FloatArray:
    """phi(w) = 1 - (1 - p_t)^w: at least one of w branches is accepted (GOOSE, Section 3).

    `widths` may be any shape and real-valued (Eq. 2 needs that); the answer, float64, has the same
    shape. ValueError for a p_t outside [0, 1] or a negative width.
    """
    check_probability("p_t", p_t)
    w = np.asarray(widths, dtype=np.float64)
    if np.any(w < 0):
        raise ValueError("A branch width is negative; clip the allocation at 0 first.")
    if p_t == 1.0:
        return np.asarray(w > 0, dtype=np.float64)
    return np.asarray(-np.expm1(w * np.log1p(-p_t)), dtype=np.float64)


def break_probabilities(spine_length: int, p_s: float) -> FloatArray:
    """P(the spine breaks right after node i) = p_s^i (1 - p_s) for i = 0..m-1; float64 [m].

    Node 0 is the anchor. These are the entry probabilities of Eq. 1's synergy term, which gives
    no branches to the last spine node.
    """
    return exit_probabilities(spine_length, p_s)[:-1]


def exit_probabilities(spine_length: int, p_s: float) -> FloatArray:
    """`break_probabilities` and p_s^m for the spine's tip; float64 [m + 1], sums to 1.

    Algorithm 1 gives the tip branches too, and the walk ends there if the whole spine is accepted.
    Eq. 1 has no term for it. ValueError for p_s outside [0, 1] or m < 0.
    """
    check_probability("p_s", p_s)
    check_count("spine_length", spine_length, 0)
    reached = np.power(p_s, np.arange(spine_length + 1, dtype=np.float64))
    reached[:-1] *= 1.0 - p_s
    return np.asarray(reached, dtype=np.float64)


def synergy(entry: FloatArray, widths: ArrayLike, p_t: float, branch_depth: int) -> float:
    """sum_i entry_i phi(w_i) (1 + ell), the middle term of Eq. 1.

    `entry` [n] is `break_probabilities` for Eq. 1 as printed or `exit_probabilities` to include
    the tip; `widths` [n] may be real. ValueError when the shapes differ.
    """
    success = branch_success(widths, p_t)
    if success.shape != entry.shape:
        raise ValueError(
            f"{success.shape} widths for {entry.shape} branching points; give one width for each."
        )
    return float(entry @ success) * (1.0 + extension_length(p_t, branch_depth))


def eq1_bound(
    spine_length: int, widths: ArrayLike, rates: AcceptanceRates, branch_depth: int
) -> float:
    """Right-hand side of GOOSE Eq. 1: sum_i p_s^i + sum_i p_s^i (1 - p_s) phi(w_i) (1 + ell) + 1.

    `widths` [m], real or integer, one per spine node 0..m-1. The factor (1 + ell)
    holds only if branches are chains of `branch_depth` tokens, which takes m + D * sum(w) nodes.
    The paper's budget is m + sum(w), and with this budget Eq. 1 is not a bound (docs/theory.md).
    ValueError for m < 1 or a width vector of another length.
    """
    check_count("spine_length", spine_length, 1)
    entry = break_probabilities(spine_length, rates.p_s)
    spine = _geometric_sum(rates.p_s, spine_length)
    return spine + synergy(entry, widths, rates.p_t, branch_depth) + 1.0


def _geometric_sum(p: float, terms: int) -> float:
    if p in {0.0, 1.0}:
        return p * terms
    # expm1 keeps the ratio exact where p is so close to 1 that 1 - p**n would cancel.
    return p * -float(np.expm1(terms * np.log(p))) / (1.0 - p)
