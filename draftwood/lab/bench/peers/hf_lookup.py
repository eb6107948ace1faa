"""transformers' prompt lookup: ``generate`` with ``prompt_lookup_num_tokens``.

It drafts the tokens after the earliest occurrence of the last few tokens. Prompts are decoded one
at a time.
"""

from dataclasses import dataclass, field

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.generating import SequentialGenerate
from draftwood.models import Loaded


@dataclass(frozen=True)
class HuggingFaceLookup:
    """Settings of prompt lookup; the default of ``ngram`` is transformers'.

    ``generate`` has no default for the number of tokens, which turns prompt lookup on; 10 is the
    default of its candidate generator.
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

    def enter(self, stock: Loaded) -> SequentialGenerate:
        """Prompt lookup on the model."""
        extra = {"prompt_lookup_num_tokens": self.tokens, "max_matching_ngram_size": self.ngram}
        return SequentialGenerate(stock.model, extra).tried()


PEER = HuggingFaceLookup
