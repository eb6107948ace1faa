"""GOOSE Proposition 4: yield of GOOSE's tree, compared with either source alone.

Algorithm 1's tree and Algorithm 2's length bypass in the independent model. Every token's
successors are available, so that only the caps K and D and the budget bind. The given rates are the
true ones.
"""

from collections import deque
from dataclasses import dataclass

from draftwood.lab.theory.allocation import algorithm1_split
from draftwood.lab.theory.dominance import best_single_rate_yield
from draftwood.lab.theory.rated_tree import RatedTree, chain, expected_yield
from draftwood.lab.theory.yields import AcceptanceRates, check_count, check_probability


@dataclass(frozen=True, slots=True)
class NonDegradation:
    """Both sides of Proposition 4 for one setting, in tokens per step, bonus included.

    `chain`: the whole match as a chain, standalone. `transition`: the best tree of the full budget
    of transitions alone. `own_transition`: the tree of Algorithm 1 without a match, a weaker and
    more literal reading. `spine`: Algorithm 1's tree. `bypassed`: the match is long enough for
    Algorithm 2 to verify it as a bare chain instead.
    """

    chain: float
    transition: float
    own_transition: float
    spine: float
    bypassed: bool

    @property
    def goose(self) -> float:
        """Yield of the route that GOOSE chooses."""
        return self.chain if self.bypassed else self.spine

    @property
    def margin(self) -> float:
        """GOOSE less the better of chain and `own_transition`; negative refutes Proposition 4."""
        return self.goose - max(self.chain, self.own_transition)


def spine_ratio(p_s: float) -> float:
    """Table 5's tiers: r = 0.15 below p_s = 0.2, 0.30 below 0.4, else 0.50."""
    check_probability("p_s", p_s)
    if p_s < 0.2:
        return 0.15
    return 0.30 if p_s < 0.4 else 0.50


def algorithm1_tree(
    budget: int,
    match_length: int,
    rates: AcceptanceRates,
    ratio: float,
    *,
    branch_depth: int = 6,
    max_children: int = 10,
) -> RatedTree:
    """GOOSE Algorithm 1 for `budget` drafted nodes, with successors always available.

    Spine, root branches, harmonic spine branches (at most `max_children` a node), then leaves in
    order of attachment get `max_children` successors each, no deeper than `branch_depth` below
    their branching point, until the budget is spent. All transitions have one rate, so the
    confidence-aware width is K for every leaf.
    """
    check_count("branch_depth", branch_depth, 1)
    check_count("max_children", max_children, 1)
    split = algorithm1_split(budget, match_length, ratio)
    parents = list(range(-1, split.spine))
    leaves: deque[tuple[int, int]] = deque()
    for node, width in enumerate((split.root, *split.per_node)):
        for _ in range(min(width, max_children)):
            leaves.append((len(parents), 1))
            parents.append(node)
    while leaves and len(parents) <= budget:
        leaf, depth = leaves.popleft()
        if depth == branch_depth:
            continue
        for _ in range(min(max_children, budget + 1 - len(parents))):
            leaves.append((len(parents), depth + 1))
            parents.append(leaf)
    branches = len(parents) - 1 - split.spine
    return RatedTree(tuple(parents), (1.0, *[rates.p_s] * split.spine, *[rates.p_t] * branches))


def non_degradation(
    budget: int,
    match_length: int,
    rates: AcceptanceRates,
    *,
    bypass_length: int | None = 8,
    branch_depth: int = 6,
    max_children: int = 10,
) -> NonDegradation:
    """Evaluate Proposition 4 at true rates, with the spine ratio those rates select.

    `budget` counts drafted nodes (59 is the paper's B = 60). A match of at least `bypass_length`
    tokens is verified as a bare chain (Algorithm 2, Table 5: 8); None turns the bypass off. The
    standalone chain is cut at `budget` like everything else.
    """
    check_count("match_length", match_length, 0)

    def built(length: int) -> float:
        return expected_yield(
            algorithm1_tree(
                budget,
                length,
                rates,
                spine_ratio(rates.p_s),
                branch_depth=branch_depth,
                max_children=max_children,
            )
        )

    return NonDegradation(
        chain=expected_yield(chain(min(match_length, budget), rates.p_s)),
        transition=best_single_rate_yield(budget, rates.p_t, max_children),
        own_transition=built(0),
        spine=built(match_length),
        bypassed=bypass_length is not None and match_length >= bypass_length,
    )
