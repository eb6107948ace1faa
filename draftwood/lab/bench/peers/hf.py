"""transformers' ``generate`` on an untouched model.

A group of prompts is padded on the left and decoded together, so the ``seconds`` of its requests
are the group's.
"""

from dataclasses import dataclass

from draftwood.lab.bench.generating import Generate
from draftwood.models import Loaded


@dataclass(frozen=True)
class HuggingFace:
    """Plain ``generate``; it has no settings."""

    def enter(self, stock: Loaded) -> Generate:
        """Plain decoding on the model."""
        return Generate(stock.model)


PEER = HuggingFace
