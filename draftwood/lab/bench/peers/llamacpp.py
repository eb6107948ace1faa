"""llama.cpp's plain decoding, through llama-cpp-python, on the very weights of the target.

One prompt at a time, whatever the batch. For Llamas only;
:mod:`draftwood.lab.bench.llamacpp.decoding` says what is the library's default and what is not.
"""

from dataclasses import dataclass

from draftwood.lab.bench.llamacpp import decoding
from draftwood.lab.bench.llamacpp.library import need
from draftwood.models import Loaded


@dataclass(frozen=True)
class LlamaCpp:
    """Plain decoding; it has no settings."""

    def __post_init__(self) -> None:
        for library in ("llama_cpp", "gguf"):
            need(library)

    def enter(self, stock: Loaded) -> decoding.LlamaCpp:
        """llama.cpp on a file with the model's weights."""
        return decoding.LlamaCpp(stock).tried()


PEER = LlamaCpp
