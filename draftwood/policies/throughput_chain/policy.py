"""The policy of ``throughput-chain``: a copied chain of a width that the tuner decides.

Source: the adaptive width K and the n-gram proposer of onnxruntime-genai (its documentation of
speculative decoding; microsoft/onnxruntime-genai#2314, #2315). The last three tokens are looked up
in the text, and K tokens that followed their latest occurrence are copied.

It differs from onnxruntime-genai in these points:

* There a batch has one request, and each request its own width. Here all requests of an engine have
  one, with which later requests begin. Rates of batches of different sizes are not told apart.
* Its *chained lookup*, which looks up the end of the copy again after each copied token, is the
  copy that goes on with its own tokens (``context.wrap``): the same in a text that repeats itself.
* The defaults are those of its documentation's example (n-grams of 4, widths from 2), not those of
  the library, where the width is fixed unless asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from draftwood.policies._frontier import lay_copied
from draftwood.policies.throughput_chain.tuner import ThroughputTuner
from draftwood.policies.throughput_chain.width import Width
from draftwood.protocols import Built, Grower, Growth, Host, Policy, Tuner, setting
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class ThroughputChain(Policy):
    """Drafts the first tokens of the preferred continuation, or nothing.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = setting(16, "longest chain to draft, in tokens", least=0)
    floor: int = setting(2, "shortest chain to draft, and the first (min_adaptive_k)", least=1)
    cooldown: bool = setting(
        False, "decode one step plainly after three of the shortest chains without an accepted one"
    )
    chain: str = setting("context", "name of the source that copies", source="chains")

    @property
    def branching(self) -> bool:
        """False: a chain never branches."""
        return False

    @property
    def weighs_costs(self) -> bool:
        """True: the length follows from the time of the steps."""
        return True

    def tuner(self, host: Host, drafters: Mapping[str, Built]) -> Tuner:
        """A tuner that begins with the shortest chain."""
        from draftwood.costs.clock import Clock, ClockOf

        width = Width(min(self.floor, self.budget), self.budget)
        return ThroughputTuner(width, host.share(ClockOf(), Clock), cooldown=self.cooldown)

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``chain``, or ``plain`` where nothing is drafted."""
        width: int = self.floor if growth.forecast is None else growth.forecast
        builder = TreeBuilder(growth.anchor)
        most = min(width, self.budget, growth.budget, growth.room)
        yield from lay_copied(builder, self.chain, most)
        return builder.build("chain" if builder.drafted else "plain")


PART = ThroughputChain
