"""DynaTree: breadth by the drafter's confidence, depth by path probability, both tuned by history.

Source: DynaTree, Section 3.3 and Algorithm 1 (``DRAFTTREE`` and ``ADJUST``). It knows its sources
by name only.

What the paper leaves open, and where this differs:

* Depths are counted from the anchor. The paper's tree has a single root token of its own, the
  drafter's top-1 at depth 0; here the first level has breadth too, and every depth is one more
  than there: D_0 is 6 for its 5, D_max 9 for its 8 (10 on PG-19), and D_0 is kept in
  [2, D_max - 1].
* A whole level is expanded in one draft forward, in the paper's breadth-first order.
* A child under tau is dropped when it is offered. The paper prunes leaves after growing them; as
  no child is likelier than its parent, the same nodes remain, and none of the others takes budget.
* Its budget N_max is 256; the default here is 59, as for every other policy.
* B_mid = 2, rho_stop, rho_deep, tau, W, a* and the step sizes are not in the paper's text; they
  are its released code's.
* History is the paper's proportional rule, applied after every step. The acceptance statistic a_r
  is the accepted nodes over the depth of the drafted tree, which lies in [0, 1]; a step that
  drafted nothing is no evidence; before W steps the mean is over those there are. D_0 stays a real
  number between steps, so that small corrections add up, and tau_h stays above tau_l.
* ``chain`` names a copying source, whose preferred continuation becomes a path below the root (not
  in the paper). These nodes are laid first, take at most half of the budget, and are neither gated
  nor pruned. Their own descendants come from the drafter, and only where the drafter proposed the
  copied token too and the gates let it pass; such a token is one node and takes no further budget.
  a_r then is measured against the deepest node that the drafter alone proposed, and is 1 at most.

The batch's price is not looked at.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.frontier import children, lay_copied, log_probability, promote, root_frontier
from draftwood.protocols import Candidates, Expand, Grower, Growth, Outcome
from draftwood.tree import Draw, TreeBuilder

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
class DynaTree:
    """The policy of DynaTree; ``budget`` is its N_max.

    The four switches are Table 4's ablation. With ``breadth="fixed"`` every node gets ``b_mid``
    children; with ``depth="fixed"`` every node above ``base_depth`` is expanded, and none below;
    without ``prune`` no leaf is dropped; without ``history`` nothing is adapted. All off is the
    fixed tree of that depth and breadth.

    Raises:
        DraftwoodError: a setting outside its range, or one source named twice.
    """

    budget: int = field(default=59, metadata={"help": "most nodes to draft, root excluded (N_max)"})
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
    chain: str = field(
        default="", metadata={"help": "name of a source that copies, as an extra path; empty: none"}
    )
    copied: int = field(
        default=10, metadata={"help": "longest copied path, in tokens (half the budget at most)"}
    )

    def __post_init__(self) -> None:
        for name in ("breadth", "depth"):
            if getattr(self, name) not in {"adaptive", "fixed"}:
                raise DraftwoodError(
                    f'{name} is "{getattr(self, name)}"; give one of adaptive, fixed'
                )
        for name, least in (("budget", 0), ("window", 1), ("copied", 1)):
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
        if self.chain == self.source:
            raise DraftwoodError(
                f'chain and source are both "{self.chain}"; name two different sources'
            )

    @property
    def sources(self) -> tuple[str, ...]:
        """The drafter, and the copying source if there is one."""
        return (self.source, self.chain) if self.chain else (self.source,)

    @property
    def draws(self) -> frozenset[Draw]:
        """Every node is chosen deterministically."""
        return frozenset({Draw.ONE_HOT})

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

    def grow(self, growth: Growth, state: DynaTreeState) -> Grower:
        """``DRAFTTREE``. Routes: ``dynatree``, or ``plain`` where nothing could be drafted."""
        tree = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        if self.chain:
            yield from lay_copied(tree, self.chain, min(self.copied, budget // 2, growth.room))
        shared = 1 if tree.drafted else 0  # a level meets the copied path in one node at most
        most = self.b_mid if self.breadth == "fixed" else self.b_max
        least = log_probability(self.tau) if self.prune else -math.inf
        active, depth = root_frontier(), 0
        while active.nodes and tree.drafted < budget and depth < growth.room:  # line 12
            k = min(most, budget - tree.drafted + shared)
            answer: Candidates = yield Expand(self.source, tree, active.nodes, k)  # line 26
            confidence = np.exp(answer.logq.max(axis=1, initial=-np.inf).astype(np.float64))
            level = children(active, answer, self.widths(confidence, state))  # line 27
            level = level.take(level.path >= least)  # lines 14 to 16
            added = promote(tree, level, self.source, budget)  # line 28
            depth += 1
            active = added.where(self.expandable(np.exp(added.path), depth, state))  # 17 to 25
        return tree.build("dynatree" if tree.drafted else "plain")


PART = DynaTree
