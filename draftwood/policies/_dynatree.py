"""DynaTree's gates and its history: how many children, which nodes to expand, what steps teach.

Source: DynaTree, Section 3.3 and Algorithm 1 (``ADJUST`` and the conditions of ``DRAFTTREE``). This
is what a policy of the likeliest children and one that draws them have in common; it neither asks
nor builds anything. What the paper leaves open:

* Depths are counted from the anchor. The paper's tree has a single root token of its own, the
  drafter's top-1 at depth 0; here the first level has breadth too, and every depth is one more
  than there: D_0 is 6 for its 5, D_max 9 for its 8 (10 on PG-19), and D_0 is kept in
  [2, D_max - 1].
* Its budget N_max is 256; the default here is 59, as for every other policy.
* B_mid = 2, rho_stop, rho_deep, tau, W, a* and the step sizes are not in the paper's text; they
  are its released code's.
* History is the paper's proportional rule, applied after every step. The acceptance statistic a_r
  is the accepted nodes over the depth of what the drafter proposed, and 1 at most; a step in which
  it proposed nothing is no evidence; before W steps the mean is over those there are. D_0 stays a
  real number between steps, so that small corrections add up, and tau_h stays above tau_l.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.policies._frontier import Frontier, Level, children, log_probability
from draftwood.protocols import Candidates, Outcome

LEAST_BASE_DEPTH = 2


@dataclass(frozen=True)
class DynaTreeState:
    """What history adapts.

    Attributes:
        recent: acceptance statistics a_r of the last steps, oldest first, at most W.
        base_depth: D_0.
        tau_high: tau_h.
    """

    recent: tuple[float, ...]
    base_depth: float
    tau_high: float


@dataclass(frozen=True)
class DynaTreeRule:
    """The settings of DynaTree; ``budget`` is its N_max.

    The four switches are Table 4's ablation. With ``breadth="fixed"`` every node gets ``b_mid``
    children; with ``depth="fixed"`` every node above ``base_depth`` is expanded, and none below;
    without ``prune`` no leaf is dropped; without ``history`` nothing is adapted. All off is the
    fixed tree of that depth and breadth.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = field(
        default=59,
        metadata={"help": "most nodes to draft, root excluded (N_max)", "search": (8, 16, 32, 59)},
    )
    breadth: Literal["adaptive", "fixed"] = field(
        default="adaptive", metadata={"help": "ablation: fixed gives every node b_mid children"}
    )
    depth: Literal["adaptive", "fixed"] = field(
        default="adaptive", metadata={"help": "ablation: fixed expands down to base_depth"}
    )
    prune: bool = field(default=True, metadata={"help": "ablation: off keeps leaves under tau"})
    history: bool = field(
        default=True, metadata={"help": "ablation: off keeps base_depth and tau_high as they are"}
    )
    b_min: int = field(default=1, metadata={"help": "children of a node with c >= tau_high"})
    b_mid: int = field(default=2, metadata={"help": "children of a node in between"})
    b_max: int = field(default=3, metadata={"help": "children of a node with c < tau_low"})
    tau_high: float = field(default=0.9, metadata={"help": "confidence that needs few children"})
    tau_low: float = field(default=0.4, metadata={"help": "confidence that needs many children"})
    base_depth: int = field(
        default=6, metadata={"help": "above it, only rho_stop ends a path (D_0, first value)"}
    )
    max_depth: int = field(default=9, metadata={"help": "deepest node (D_max)"})
    rho_stop: float = field(default=0.1, metadata={"help": "least path probability to be expanded"})
    rho_deep: float = field(
        default=0.5, metadata={"help": "path probability to exceed from base_depth on"}
    )
    tau: float = field(default=0.05, metadata={"help": "least path probability of a leaf"})
    window: int = field(default=10, metadata={"help": "steps that history looks back on (W)"})
    goal: float = field(default=0.7, metadata={"help": "acceptance to steer towards (a*)"})
    depth_step: float = field(default=1.0, metadata={"help": "step size of base_depth (eta_D)"})
    tau_step: float = field(default=0.05, metadata={"help": "step size of tau_high (eta_h)"})
    source: str = field(default="draft", metadata={"help": "name of the drafter"})

    def __post_init__(self) -> None:
        for name in ("breadth", "depth"):
            if getattr(self, name) not in {"adaptive", "fixed"}:
                raise DraftwoodError(
                    f'{name} is "{getattr(self, name)}"; give one of adaptive, fixed'
                )
        for name, least in (("budget", 0), ("window", 1)):
            if getattr(self, name) < least:
                raise DraftwoodError(f"{name} is {getattr(self, name)}; give at least {least}")
        for name in ("depth_step", "tau_step"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise DraftwoodError(f"{name} is {getattr(self, name)}; give a number above 0")
        for rule, holds in (
            ("1 <= b_min <= b_mid <= b_max", 1 <= self.b_min <= self.b_mid <= self.b_max),
            ("0 < tau_low < tau_high < 1", 0.0 < self.tau_low < self.tau_high < 1.0),
            (
                f"{LEAST_BASE_DEPTH} <= base_depth < max_depth",
                LEAST_BASE_DEPTH <= self.base_depth < self.max_depth,
            ),
            ("0 < rho_stop < rho_deep < 1", 0.0 < self.rho_stop < self.rho_deep < 1.0),
            ("0 <= tau < 1", 0.0 <= self.tau < 1.0),
            ("0 < goal < 1", 0.0 < self.goal < 1.0),
        ):
            if not holds:
                names = [word for word in rule.split() if word.isidentifier()]
                given = ", ".join(f"{name} = {getattr(self, name)}" for name in names)
                raise DraftwoodError(f"{given}: give values with {rule}")

    def start(self) -> DynaTreeState:
        """No history, and the thresholds as they were set."""
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
