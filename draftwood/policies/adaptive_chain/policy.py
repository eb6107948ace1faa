"""The policy of ``adaptive-chain``: a chain of likeliest tokens, of which the tuner keeps a part.

Source: vLLM's adaptive verification (documentation of version 0.33; vllm-project/vllm#47808 and
#52228; the post of 2026-08-14 on its blog). A drafter proposes K tokens for every request. Each of
them survives with the product of the acceptance probabilities along its chain. The likeliest of the
whole batch are verified, as many as have the most expected tokens per second by a table of costs.
So a request keeps a prefix of its chain, and each may keep another number.

It differs from vLLM in these points:

* Tokens are the drafter's likeliest at every temperature, and are verified by the target's own
  draws. vLLM samples them above temperature 0.
* The batch's number follows from this step's probabilities. vLLM computes it from those of the step
  before, so as not to wait for the device.
* vLLM leaves out the host's time, and rounds sizes up to those of its CUDA graphs. Here a step's
  cost is the one that ``auto`` uses, corrected by every step (docs/costs.md).
* Suffix decoding, a further drafter of vLLM's rule, is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from draftwood.costs.recall import recall_or_measure
from draftwood.policies.adaptive_chain.estimator import AcceptanceEstimator, log_odds
from draftwood.policies.adaptive_chain.tuner import AdaptiveTuner, Chain
from draftwood.protocols import (
    Bid,
    Built,
    Candidates,
    Expand,
    Grower,
    Growth,
    Host,
    Learnt,
    Policy,
    Price,
    Tuner,
    setting,
)
from draftwood.tree import ROOT, TreeBuilder


@dataclass(frozen=True)
class AdaptiveChain(Policy):
    """Drafts ``budget`` tokens, and keeps those that pay.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = setting(7, "tokens to draft, of which a part is verified", least=0)
    warmup: int = setting(
        3, "fits of the acceptance, 100 steps each, before chains are cut", least=0
    )
    source: str = setting("draft", "name of the drafter", source="successors")

    @property
    def branching(self) -> bool:
        """False: a chain never branches."""
        return False

    @property
    def weighs_costs(self) -> bool:
        """True: as many tokens are verified as pay."""
        return True

    def tuner(self, host: Host, drafters: Mapping[str, Built]) -> Tuner:
        """A tuner of the target's measured costs.

        Engines of one method on one host share what is learnt.
        """
        one = drafters[self.source]
        key = Learnt((self, one.spec.model, one.drafter.at_once))
        acceptance = host.share(key, lambda: AcceptanceEstimator(max(1, self.budget), self.warmup))
        costs = recall_or_measure(host, drafters, self)
        return AdaptiveTuner(acceptance, costs, at_once=one.drafter.at_once)

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the chain. Routes: ``adaptive``, or ``plain`` where nothing is verified."""
        tree = TreeBuilder(growth.anchor)
        most = min(self.budget, growth.budget, growth.room)
        node, odds = ROOT, list[float]()
        while tree.drafted < most:
            answer: Candidates = yield Expand(self.source, tree, [node], 1)
            token, logq = int(answer.tokens[0, 0]), float(answer.logq[0, 0])
            if token < 0:
                break
            node = tree.add(node, token, self.source, logq=logq)
            odds.append(log_odds(logq))
        acceptance: AcceptanceEstimator | None = growth.forecast
        if not odds or acceptance is None:
            return tree.build("adaptive" if odds else "plain")
        chain = Chain.of(odds, acceptance)
        price: Price = yield Bid(
            chain.survival, levels={self.source: (1,) * len(odds)}, report=chain
        )
        kept = chain.kept(price)
        return tree.part(range(1, kept + 1), "adaptive" if kept else "plain")


PART = AdaptiveChain
