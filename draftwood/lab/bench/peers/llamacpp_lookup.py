"""llama-cpp-python's prompt lookup: ``Llama`` with ``LlamaPromptLookupDecoding``; for Llamas only.

It drafts the tokens after the earliest occurrence of the last few tokens, longest suffix first.
Prompts are decoded one at a time. :mod:`draftwood.lab.bench.llamacpp.decoding` lists settings that
differ from the library's defaults.
"""

from dataclasses import dataclass, field

from draftwood.errors import DraftwoodError, need
from draftwood.lab.bench.llamacpp import decoding
from draftwood.models import Loaded


@dataclass(frozen=True)
class LlamaCppLookup:
    """Settings of prompt lookup, with the library's defaults."""

    tokens: int = field(
        default=10, metadata={"help": "most tokens drafted a step (num_pred_tokens)"}
    )
    ngram: int = field(default=2, metadata={"help": "longest suffix looked up (max_ngram_size)"})

    def __post_init__(self) -> None:
        for name in ("tokens", "ngram"):
            value = getattr(self, name)
            if value < 1:
                raise DraftwoodError(f"{name} is {value}: llamacpp-lookup needs at least 1")
        for library in ("llama_cpp", "gguf"):
            need(library, "llamacpp")

    def enter(self, stock: Loaded) -> decoding.LlamaCpp:
        """Prompt lookup from a file with the model's weights."""
        lookup = need("llama_cpp.llama_speculative", "llamacpp").LlamaPromptLookupDecoding(
            max_ngram_size=self.ngram, num_pred_tokens=self.tokens
        )
        return decoding.LlamaCpp(stock, lookup, ahead=self.tokens).tried()


PEER = LlamaCppLookup
