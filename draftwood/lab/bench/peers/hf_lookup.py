"""transformers' prompt lookup: ``generate`` with ``prompt_lookup_num_tokens``.

It drafts the tokens after the earliest occurrence of the last few tokens. Prompts are decoded one
at a time.
"""

from dataclasses import dataclass

from draftwood.lab.bench.generating import Generate
from draftwood.models import Loaded
from draftwood.protocols import Part, setting


@dataclass(frozen=True)
class HuggingFaceLookup(Part):
    """Settings of prompt lookup; the default of ``ngram`` is transformers'.

    ``generate`` has no default for the number of tokens, which turns prompt lookup on; 10 is the
    default of its candidate generator.
    """

    tokens: int = setting(10, "most tokens drafted a step (prompt_lookup_num_tokens)", least=1)
    ngram: int = setting(2, "longest suffix looked up (max_matching_ngram_size)", least=1)

    def enter(self, stock: Loaded) -> Generate:
        """Prompt lookup on the model."""
        extra = {"prompt_lookup_num_tokens": self.tokens, "max_matching_ngram_size": self.ngram}
        return Generate(stock.model, extra).tried()


PEER = HuggingFaceLookup
