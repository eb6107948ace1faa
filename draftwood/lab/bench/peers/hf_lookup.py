"""transformers' own prompt lookup: ``generate`` with ``prompt_lookup_num_tokens``.

The text is searched for the earliest place where its last few tokens stand, and what follows there
is drafted. One prompt at a time, whatever the batch.
"""

from dataclasses import dataclass, field

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.generating import OneByOne
from draftwood.models import Loaded


@dataclass(frozen=True)
class HuggingFaceLookup:
    """The settings of prompt lookup; ``ngram``'s default is transformers' own.

    transformers has no default for the number of tokens in ``generate`` (giving it is what turns
    prompt lookup on); 10 is that of its candidate generator.
    """

    tokens: int = field(
        default=10, metadata={"help": "most tokens drafted a step (prompt_lookup_num_tokens)"}
    )
    ngram: int = field(
        default=2, metadata={"help": "longest suffix looked up (max_matching_ngram_size)"}
    )

    def __post_init__(self) -> None:
        for name in ("tokens", "ngram"):
            value = getattr(self, name)
            if value < 1:
                raise DraftwoodError(f"{name} is {value}: hf-lookup needs at least 1")

    def enter(self, stock: Loaded) -> OneByOne:
        """Prompt lookup on the model."""
        extra = {"prompt_lookup_num_tokens": self.tokens, "max_matching_ngram_size": self.ngram}
        return OneByOne(stock.model, extra).tried()


PEER = HuggingFaceLookup
