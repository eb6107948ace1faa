"""DynaTree: breadth by the drafter's confidence, depth by path probability, both tuned by history.

Source: DynaTree, Section 3.3 and Algorithm 1 (``DRAFTTREE`` and ``ADJUST``). Details that the paper
leaves open, and deviations:

* Depths are counted from the anchor. The paper's tree has a single root token, the drafter's top-1
  at depth 0. Here the first level has breadth too, and every depth is one more than in the paper:
  D_0 is 6 for its 5, D_max 9 for its 8 (10 on PG-19). D_0 stays in [2, D_max - 1].
* The paper's budget N_max is 256; the default here is 59, as for every other policy.
* B_mid = 2, rho_stop, rho_deep, tau, W, a* and the step sizes are not in the paper's text; they
  are its released code's.
* A whole level is expanded in one draft forward, in the paper's breadth-first order.
* History is the paper's proportional rule, applied after every step. The acceptance statistic a_r
  is the number of accepted nodes over the depth of the drafter's deepest node, at most 1. A step
  without the drafter's nodes is no evidence. Before W steps the mean is over the steps so far. D_0
  stays a real number between steps, so that small corrections add up. tau_h stays above tau_l.
* A copied path (``chain``) and drawn children are not in the paper
  (``draftwood.policies._sampling.TopOrDrawn``). The gates decide the number of drawn children: a
  node gets B(u) of them, less those of its B(u) likeliest children that would be pruned. A drawn
  child stays however unlikely it is. P is the product of q over the tokens drawn on a path; it
  decides whether a node is expanded, not whether it stays. So an unlikely draw is a leaf.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.policies._frontier import (
    Frontier,
    Level,
    certain_frontier,
    children,
    log_probability,
)
from draftwood.policies._sampling import TopOrDrawn, draw_as_many
from draftwood.protocols import Candidates, Grower, Growth, Outcome, Recipe, setting

LEAST_BASE_DEPTH = 2


@dataclass(frozen=True)
class DynaTreeState:
    """The state that adapts to the history.

    Attributes:
        recent: acceptance statistics a_r of the last steps, oldest first, at most W.
        base_depth: D_0.
        tau_high: tau_h.
    """

    recent: tuple[float, ...]
    base_depth: float
    tau_high: float


@dataclass(frozen=True)
class DynaTree(TopOrDrawn):
    """The policy of DynaTree; ``budget`` is its N_max.

    Four switches are Table 4's ablation. With ``breadth="fixed"`` every node gets ``b_mid``
    children; with ``depth="fixed"`` every node above ``base_depth`` is expanded, and none below;
    without ``prune`` no leaf is dropped; without ``history`` nothing is adapted. All off is the
    fixed tree of that depth and breadth.

    Raises:
        DraftwoodError: a setting outside its range, or settings that contradict one another.
    """

    breadth: Literal["adaptive", "fixed"] = setting(
        "adaptive", "ablation: fixed gives every node b_mid children"
    )
    depth: Literal["adaptive", "fixed"] = setting(
        "adaptive", "ablation: fixed expands down to base_depth"
    )
    prune: bool = setting(True, "ablation: off keeps leaves under tau")
    history: bool = setting(True, "ablation: off keeps base_depth and tau_high as they are")
    b_min: int = setting(1, "children of a node with c >= tau_high", least=1)
    b_mid: int = setting(2, "children of a node with tau_low <= c < tau_high", least=1)
    b_max: int = setting(3, "children of a node with c < tau_low", least=1)
    tau_high: float = setting(
        0.9, "confidence from which on a node gets b_min children", above=0, below=1
    )
    tau_low: float = setting(
        0.4, "confidence below which a node gets b_max children", above=0, below=1
    )
    base_depth: int = setting(
        6, "above it, only rho_stop ends a path (D_0, first value)", least=LEAST_BASE_DEPTH
    )
    max_depth: int = setting(9, "deepest node (D_max)", least=LEAST_BASE_DEPTH + 1)
    rho_stop: float = setting(0.1, "least path probability to be expanded", above=0, below=1)
    rho_deep: float = setting(
        0.5, "path probability to exceed from base_depth on", above=0, below=1
    )
    tau: float = setting(0.05, "least path probability of a leaf", least=0, below=1)
    window: int = setting(10, "steps in the history (W)", least=1)
    goal: float = setting(0.7, "acceptance to steer towards (a*)", above=0, below=1)
    depth_step: float = setting(1.0, "step size of base_depth (eta_D)", above=0, below=math.inf)
    tau_step: float = setting(0.05, "step size of tau_high (eta_h)", above=0, below=math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        for rule, holds in {
            "b_min <= b_mid <= b_max": self.b_min <= self.b_mid <= self.b_max,
            "tau_low < tau_high": self.tau_low < self.tau_high,
            "base_depth < max_depth": self.base_depth < self.max_depth,
            "rho_stop < rho_deep": self.rho_stop < self.rho_deep,
        }.items():
            if not holds:
                names = [word for word in rule.split() if word.isidentifier()]
                given = ", ".join(f"{name} = {getattr(self, name)}" for name in names)
                raise DraftwoodError(f"{given}: give values with {rule}")

    def start(self) -> DynaTreeState:
        """The initial state: no history, and the thresholds of the settings."""
        return DynaTreeState((), float(self.base_depth), self.tau_high)

    def learn(self, state: DynaTreeState, outcome: Outcome) -> DynaTreeState:
        """``ADJUST``: move D_0 and tau_h in proportion to the mean of a_r minus a*."""
        tree = outcome.tree
        own = [
            d for d, s in zip(tree.depths.tolist(), tree.sources, strict=True) if s == self.source
        ]
        if not self.history or not own:
            return state
        accepted = min(1.0, len(outcome.path) / max(own))
        recent = (*state.recent, accepted)[-self.window :]
        surplus = sum(recent) / len(recent) - self.goal
        base_depth = state.base_depth + self.depth_step * surplus
        tau_high = state.tau_high - self.tau_step * surplus
        return DynaTreeState(
            recent,
            min(max(base_depth, LEAST_BASE_DEPTH), self.max_depth - 1),
            min(max(tau_high, math.nextafter(self.tau_low, 1.0)), 1.0),
        )

    def widths(self, confidence: NDArray[np.float64], state: DynaTreeState) -> NDArray[np.int64]:
        """B(u) of nodes with these c(u), the drafter's largest probability; both ``[m]``."""
        if self.breadth == "fixed":
            return np.full(len(confidence), self.b_mid)
        few, many = confidence >= state.tau_high, confidence < self.tau_low
        return np.where(few, self.b_min, np.where(many, self.b_max, self.b_mid))

    def expandable(
        self, probability: NDArray[np.float64], depth: int, state: DynaTreeState
    ) -> NDArray[np.bool_]:
        """Depth gating of nodes at ``depth`` with these path probabilities; both ``[m]``."""
        if self.depth == "fixed":
            return np.full(len(probability), depth < self.base_depth)
        shallow, deep = depth < state.base_depth, probability > self.rho_deep
        gates: NDArray[np.bool_] = (probability >= self.rho_stop) & (shallow | deep)
        return gates & (depth < self.max_depth)

    @property
    def most(self) -> int:
        """Most children that any node gets."""
        return self.b_mid if self.breadth == "fixed" else self.b_max

    def select(self, active: Frontier, answer: Candidates, state: DynaTreeState) -> Level:
        """The children of a level (lines 27 and 14 to 16), node by node, likeliest first.

        A child under tau is left out when it is offered. The paper prunes leaves after growing
        them; as no child is likelier than its parent, the same nodes remain, and none of the
        others takes budget.

        Args:
            active: ``m`` expandable nodes.
            answer: at least :attr:`most` of the likeliest children of each, or what budget is left.
            state: what history made of the thresholds.
        """
        confidence = np.exp(answer.logq.max(axis=1, initial=-np.inf).astype(np.float64))
        level = children(active, answer, self.widths(confidence, state))
        least = log_probability(self.tau) if self.prune else -math.inf
        return level.take(level.path >= least)

    @property
    def branching(self) -> bool:
        """Whether a node may have several children; not if all get one drawn child."""
        return self.children == "top" or self.most > 1

    def grow(self, growth: Growth, state: DynaTreeState) -> Grower:
        """Grow the tree (``DRAFTTREE``).

        Routes: ``dynatree``, or ``plain`` where nothing could be drafted.
        """
        budget = min(self.budget, growth.budget)
        drawing = self.drawing(growth)
        tree = yield from self.copy(growth, budget)
        shared = 1 if tree.drafted else 0  # a level meets the copied path in one node at most
        active, depth = certain_frontier(), 0
        while active.nodes and tree.drafted < budget and depth < growth.room:  # line 12
            k = min(self.most, budget - tree.drafted + shared)
            answer: Candidates = yield drawing.likeliest(tree, active, k)  # line 26
            level = self.select(active, answer, state)  # lines 27 and 14 to 16
            added = yield from draw_as_many(  # line 28
                tree, active, level, drawing, self.last, budget
            )
            depth += 1
            active = added.where(self.expandable(np.exp(added.path), depth, state))  # 17 to 25
        return tree.build("dynatree" if tree.drafted else "plain")


PART = DynaTree
RECIPES = (
    Recipe(
        "dynatree",
        "a draft model's tree, its breadth by confidence, its depth by path probability",
        "DynaTree (adaptive draft-model trees)",
        drafters={"draft": "model", "context": "context"},
    ),
    Recipe(
        "traversal-dynatree",
        "a sampled tree, its breadth by confidence, its depth by path probability",
        "Traversal Verification, with DynaTree's gates",
        drafters={"draft": "model"},
        verifier="traversal",
        presets={"children": "drawn"},
    ),
)
