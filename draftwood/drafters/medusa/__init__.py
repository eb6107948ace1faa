"""Medusa: the drafter, its heads and their checkpoints."""

from draftwood.drafters.medusa.drafter import PART

__all__ = ["PART"]
