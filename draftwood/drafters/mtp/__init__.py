"""Multi-token-prediction (MTP) layers that are part of a target: the drafter and their loading."""

from draftwood.drafters.mtp.drafter import PART

__all__ = ["PART"]
