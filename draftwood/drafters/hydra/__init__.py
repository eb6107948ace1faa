"""Hydra: the drafter, its heads and their checkpoints."""

from draftwood.drafters.hydra.drafter import PART

__all__ = ["PART"]
