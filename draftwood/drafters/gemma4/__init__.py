"""Gemma 4 assistants, which attend to their target's own keys and values."""

from draftwood.drafters.gemma4.drafter import PART

__all__ = ["PART"]
