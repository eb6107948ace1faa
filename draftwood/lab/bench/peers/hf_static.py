"""transformers' ``generate`` with a static cache, for which it compiles the model on a GPU.

The cache has room for ``length`` tokens, or for the longest group so far: for a longer one the
model is compiled anew.
"""

from dataclasses import dataclass

from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.generating import Generate
from draftwood.models import Loaded
from draftwood.protocols import Part, setting

_TOKENS = 8
"""New tokens of the first call; by the last of them the forward of one token is compiled."""


@dataclass(frozen=True)
class HuggingFaceStatic(Part):
    """Settings of plain ``generate`` with a static cache."""

    length: int = setting(2048, "tokens that the cache has room for from the start", least=16)

    def enter(self, stock: Loaded) -> Generate:
        """Plain decoding on the model, which is compiled.

        Raises:
            DraftwoodError: the model is on a CPU, where transformers does not compile it.
        """
        if stock.model.device.type == "cpu":
            raise DraftwoodError(
                "transformers compiles a model for a static cache on a GPU only: compare with the "
                "peer hf on a CPU"
            )
        return static(stock, self.length)


def static(stock: Loaded, length: int) -> Generate:
    """Plain decoding with a cache of ``length`` tokens, or of the model's context if it is shorter.

    Tokens are generated behind a prompt that fills the cache, so that it has this length in all
    further calls.
    """
    found = Generate(stock.model, {"cache_implementation": "static"}, together=True)
    config = stock.model.config.get_text_config()
    room = min(length, config.max_position_embeddings) - _TOKENS
    prompt = [1 + i % (config.vocab_size - 1) for i in range(room)]
    found.begin(1)([Request(prompt, _TOKENS, eos=())])
    return found


PEER = HuggingFaceStatic
