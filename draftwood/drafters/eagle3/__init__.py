"""EAGLE-3: the drafter, its head and the head's checkpoints.

The head is a transformers model that :func:`draftwood.runner.attach.attach` accepts like any other.
"""

from draftwood.drafters.eagle3.drafter import PART

__all__ = ["PART"]
