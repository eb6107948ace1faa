"""llama.cpp's plain decoding, with llama-cpp-python and the target's weights; for Llamas only.

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
class LlamaCpp(Part):
    """Settings of plain decoding."""

    weights: Precision = setting("model", "the matrices' type: the model's own, or quantised")

    def __post_init__(self) -> None:
        super().__post_init__()
        for library in ("llama_cpp", "gguf"):
            need(library, "llamacpp")

    def enter(self, stock: Loaded) -> decoding.LlamaCppDecoder:
        """Plain decoding from a file with the model's weights."""
        return decoding.LlamaCppDecoder(stock, precision=self.weights).tried()


PEER = LlamaCpp
