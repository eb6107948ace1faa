"""The EAGLE-3 head: a one-layer draft network on features of the target, and its checkpoints.

Nothing here knows how trees are drafted, verified or cached: the head is a transformers model that
:func:`draftwood.runner.attach.attach` accepts like any other.
"""

from draftwood.drafters.eagle3.drafter import PART

__all__ = ["PART"]
