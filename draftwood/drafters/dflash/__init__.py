"""DFlash: the drafter, its network and its checkpoints."""

from draftwood.drafters.dflash.drafter import PART

__all__ = ["PART"]
