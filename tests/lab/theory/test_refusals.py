"""Arguments outside of the theory's domain are refused."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from draftwood.lab.theory.allocation import (
    algorithm1_split,
    eq2_allocation,
    greedy_allocation,
    harmonic_allocation,
    largest_remainder,
)
from draftwood.lab.theory.dominance import (
    best_isotropic_yield,
    best_single_rate_yield,
    best_two_source_yield,
    paid_spine_yield,
    printed_spine_yield,
)
from draftwood.lab.theory.nondegradation import algorithm1_tree, non_degradation, spine_ratio
from draftwood.lab.theory.rated_tree import (
    ENUMERATION_LIMIT,
    RatedTree,
    chain,
    enumerated_yield,
    isotropic,
    spine_tree,
)
from draftwood.lab.theory.sequoia_tree import best_tree, fastest_tree
from draftwood.lab.theory.yields import (
    AcceptanceRates,
    branch_success,
    eq1_bound,
    extension_length,
    synergy,
)

RATES = AcceptanceRates(0.5, 0.1)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (partial(eq2_allocation, 3, 5, AcceptanceRates(1.0, 0.1)), "0 < p_s < 1"),
        (partial(eq2_allocation, 3, 5, AcceptanceRates(0.5, 0.0)), "0 < p_s < 1"),
        (partial(largest_remainder, np.array([4.0, -1.0]), 3), "non-negative and sum to 3"),
        (partial(largest_remainder, np.array([1.0, 2.0]), 4), "non-negative and sum to 4"),
        (partial(greedy_allocation, np.ones(2), -1, 0.5), "branches is -1"),
        (partial(greedy_allocation, np.ones((2, 2)), 1, 0.5), "entry must be a vector"),
        (partial(harmonic_allocation, 0, 3), "spine_length is 0"),
        (partial(algorithm1_split, 59, 3, 1.3), "spine_ratio"),
        (partial(printed_spine_yield, 3, 4, RATES, 6), "branches is -1"),
        (partial(paid_spine_yield, 3, 4, RATES, 6), "branches is -1"),
        (partial(best_single_rate_yield, 5, 0.1, 0), "max_children is 0"),
        (partial(best_single_rate_yield, 5, 2.0), "p is 2"),
        (partial(best_two_source_yield, 5, -1, RATES), "spine_length is -1"),
        (partial(best_isotropic_yield, 0, 0.1), "budget is 0"),
        (partial(non_degradation, 59, -1, RATES), "match_length is -1"),
        (partial(algorithm1_tree, 59, 5, RATES, 0.3, max_children=0), "max_children is 0"),
        (partial(algorithm1_tree, 59, 5, RATES, 0.3, branch_depth=0), "branch_depth is 0"),
        (partial(spine_ratio, -0.1), "p_s is"),
        (partial(RatedTree, (0, 0), (1.0, 0.5)), "Node 0 must be the root"),
        (partial(RatedTree, (-1, 2, 0), (1.0, 0.5, 0.5)), "parents before their children"),
        (partial(RatedTree, (-1, 0), (1.0,)), "give each node both"),
        (partial(RatedTree, (-1, 0), (1.0, 1.01)), "rate of node 1"),
        (partial(enumerated_yield, chain(ENUMERATION_LIMIT + 1, 0.5)), "too many acceptance"),
        (partial(spine_tree, 2, [1, 1, 1, 1], RATES), "4 widths for a spine of 2"),
        (partial(spine_tree, 1, [-1], RATES), "width at spine node 0 is -1"),
        (partial(isotropic, 3, 0, 0.5), "fan_out is 0"),
        (partial(AcceptanceRates, 0.5, 1.5), r"p_t is 1\.5"),
        (partial(AcceptanceRates, math.nan, 0.5), "p_s is nan"),
        (partial(extension_length, 0.5, 0), "branch_depth is 0"),
        (partial(branch_success, [1.0, -0.5], 0.5), "clip the allocation"),
        (partial(eq1_bound, 0, [], RATES, 6), "spine_length is 0"),
        (partial(eq1_bound, 2, [1, 1, 1], RATES, 6), "one width for each"),
        (partial(synergy, np.ones(2), [1], 0.5, 6), "one width for each"),
        (partial(best_tree, [], 1, 1), "ranks"),
        (partial(best_tree, [1.1], 1, 1), "acceptance of rank 0"),
        (partial(best_tree, [0.5], -1, 1), "nodes"),
        (partial(best_tree, [0.5], 1, -1), "max_depth"),
        (partial(fastest_tree, [0.5], -1.0, [1.0], 2), "target times"),
        (partial(fastest_tree, [0.5], math.nan, [1.0], 2), "target times"),
        (partial(fastest_tree, [0.5], 1.0, [], 2), "target times"),
        (partial(fastest_tree, [0.5], 1.0, [1.0, 0.0], 2), "target times"),
    ],
)
def test_impossible_arguments_are_refused(call: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        call()
