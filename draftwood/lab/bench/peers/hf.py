"""transformers' own ``generate`` on an untouched model: what a user has without Draftwood.

A group of prompts is padded on the left and comes back as a whole, so all of its requests share
one end: their ``seconds`` are the group's.
"""

from dataclasses import dataclass

from draftwood.lab.bench.generating import Together
from draftwood.models import Loaded


@dataclass(frozen=True)
class HuggingFace:
    """Plain ``generate``; it has no settings."""

    def enter(self, stock: Loaded) -> Together:
        """Plain decoding on the model."""
        return Together(stock.model)


PEER = HuggingFace
