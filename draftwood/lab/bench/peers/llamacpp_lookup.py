"""llama-cpp-python's own prompt lookup: ``Llama`` with ``LlamaPromptLookupDecoding``.

The text is searched for the earliest place where its last few tokens stand, longest suffix first,
and what follows there is drafted. One prompt at a time, whatever the batch. For Llamas only;
:mod:`draftwood.lab.bench.llamacpp.decoding` says what is the library's default and what is not.
"""

from dataclasses import dataclass, field

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.llamacpp import decoding
from draftwood.lab.bench.llamacpp.library import need
from draftwood.models import Loaded


@dataclass(frozen=True)
class LlamaCppLookup:
    """The settings of prompt lookup; the defaults are the library's."""

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
            need(library)

    def enter(self, stock: Loaded) -> decoding.LlamaCpp:
        """Prompt lookup on a file with the model's weights."""
        lookup = need("llama_cpp.llama_speculative").LlamaPromptLookupDecoding(
            max_ngram_size=self.ngram, num_pred_tokens=self.tokens
        )
        return decoding.LlamaCpp(stock, lookup, ahead=self.tokens).tried()


PEER = LlamaCppLookup
