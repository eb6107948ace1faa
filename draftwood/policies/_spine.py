"""GOOSE's shares of the budget, its routing rule and its adaptation.

Source: GOOSE, Algorithm 1 (lines 1 to 3 and 10), Algorithm 2 and Section 4.3. This is what a policy
that ranks the branches of a spine tree and one that draws them have in common; it neither asks nor
builds anything. Consensus as printed holds for almost every match, so there is a stricter rule
beside it (:func:`bypasses`).
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from draftwood.protocols import Continuation, Outcome, Policy, setting

EMA = 0.3
FIRST_P_S = 0.3
TIERS = ((0.2, 0.15), (0.4, 0.30))
TOP_RATIO = 0.50
MIN_SCORE = 0.01

Bypass: TypeAlias = Literal["distinct", "paper", "off"]


@dataclass(frozen=True)
class SpineShape:
    """The numbers of Algorithm 1.

    Attributes:
        size: most nodes in all, root included (the paper's B).
        ratio: share of ``size`` for the spine (the paper's r).
        rho: share of what the spine leaves that goes to its nodes' branches, not the root's.
        max_depth: deepest branch node, counted from its branching point (D).
        top_k: most children that the branches' source gives a node (K).
        room: deepest useful node, counted from the root.
        min_score: least score of a branch node (0.01 in Section 4.1).
        spine_branches: whether spine nodes get branches of their own.
    """

    size: int
    ratio: float
    rho: float
    max_depth: int
    top_k: int
    room: int
    min_score: float = MIN_SCORE
    spine_branches: bool = True

    def spine_length(self, available: int) -> int:
        """Line 1: nodes of the spine, from the chain's length."""
        return min(available, math.floor(self.size * self.ratio), self.size - 1, self.room)

    def root_branches(self, spine: int) -> int:
        """Line 2: branches of the root beside a spine of ``spine`` nodes."""
        return math.floor((self.size - 1 - spine) * (1 - self.rho))

    def node_branches(self, spine: int) -> list[int]:
        """Lines 3 and 10: branches of each spine node, by harmonic decay."""
        if not self.spine_branches:
            return [0] * spine
        left = self.size - 1 - spine - self.root_branches(spine)
        harmonic = sum(1 / i for i in range(1, spine + 1))
        return [math.floor(left * (1 / i) / harmonic) for i in range(1, spine + 1)]

    def leaf_width(self, relative: float) -> int:
        """Step 4: most children of a branch leaf, by its score over its best sibling's."""
        return max(1, math.floor(self.top_k * relative + 0.5))


@dataclass(frozen=True)
class SpineState:
    """Running estimate of the spine's acceptance rate (Section 4.3)."""

    p_s: float = FIRST_P_S

    def ratio(self, fixed: float) -> float:
        """r of Section 4.3: a tier of p_s, unless a ratio above 0 is fixed."""
        return fixed or next((r for bound, r in TIERS if self.p_s < bound), TOP_RATIO)


def bypasses(offer: Continuation, rule: Bypass, length: int) -> bool:
    """Algorithm 2: whether a copied chain is to be verified alone.

    Args:
        offer: the chain.
        rule: ``"distinct"`` asks for two different occurrences that agree, or a matched suffix of
            ``length`` tokens; ``"paper"``, as printed, for two query lengths that agree, or a chain
            of ``length`` tokens; ``"off"`` never.
        length: in tokens.
    """
    if rule == "distinct":
        return offer.count >= 2 or offer.match_length >= length
    if rule == "paper":
        return offer.agreeing >= 2 or len(offer.tokens) >= length
    return False


@dataclass(frozen=True)
class SpineRule(Policy):
    """The settings of GOOSE; ``budget`` excludes the root, so the paper's B = 60 is 59 here.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = setting(59, "most nodes to draft, root excluded", search=(8, 16, 32, 59), least=0)
    max_depth: int = setting(6, "deepest branch, from its branching point (D)", least=1)
    rho: float = setting(
        0.5, "share of the branches that goes to the spine's nodes", least=0, most=1
    )
    top_k: int = setting(10, "most children per node (K)", least=1)
    min_score: float = setting(
        MIN_SCORE, "least probability of a branch node that is not sampled", least=0, below=1
    )
    ratio: float = setting(
        0.0, "share of the tree for the spine; 0 adapts it to p_s", least=0, most=1
    )
    bypass: Bypass = setting("distinct", "when to verify the copied chain alone")
    bypass_length: int = setting(
        8, "least match (paper: chain) to verify the chain alone, in tokens", least=1
    )
    chain: str = setting("context", "name of the source that copies", source="chains")

    def start(self) -> SpineState:
        """The initial state: p_s = 0.3 (Algorithm 2, line 3)."""
        return SpineState()

    def learn(self, state: SpineState, outcome: Outcome) -> SpineState:
        """Average in the accepted share of the spine, in steps that drafted one."""
        sources = outcome.tree.sources
        drafted = sources.count(self.chain)
        if not drafted:
            return state
        accepted = sum(sources[node] == self.chain for node in outcome.path)
        return SpineState(state.p_s + EMA * (accepted / drafted - state.p_s))

    def shape(
        self, budget: int, room: int, state: SpineState, spine_branches: bool = True
    ) -> SpineShape:
        """The numbers of Algorithm 1 in one step."""
        return SpineShape(
            size=budget + 1,
            ratio=state.ratio(self.ratio),
            rho=self.rho,
            max_depth=self.max_depth,
            top_k=self.top_k,
            room=room,
            min_score=self.min_score,
            spine_branches=spine_branches,
        )
