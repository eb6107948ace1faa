"""llama-cpp-python's prompt lookup: ``Llama`` with ``LlamaPromptLookupDecoding``; for Llamas only.

It drafts the tokens after the earliest occurrence of the last few tokens, longest suffix first.
Prompts are decoded one at a time. :mod:`draftwood.lab.bench.llamacpp.decoding` lists settings that
differ from the library's defaults.
"""

from dataclasses import dataclass

from draftwood.errors import need
from draftwood.lab.bench.llamacpp import decoding
from draftwood.lab.bench.llamacpp.gguf import Precision
from draftwood.models import Loaded
from draftwood.protocols import Part, setting


@dataclass(frozen=True)
class LlamaCppLookup(Part):
    """Settings of prompt lookup, with the library's defaults."""

    tokens: int = setting(10, "most tokens drafted a step (num_pred_tokens)", least=1)
    weights: Precision = setting("model", "the matrices' type: the model's own, or quantised")
    ngram: int = setting(2, "longest suffix looked up (max_ngram_size)", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for library in ("llama_cpp", "gguf"):
            need(library, "llamacpp")

    def enter(self, stock: Loaded) -> decoding.LlamaCppDecoder:
        """Prompt lookup from a file with the model's weights."""
        lookup = need("llama_cpp.llama_speculative", "llamacpp").LlamaPromptLookupDecoding(
            max_ngram_size=self.ngram, num_pred_tokens=self.tokens
        )
        return decoding.LlamaCppDecoder(stock, lookup, self.tokens, self.weights).tried()


PEER = LlamaCppLookup
