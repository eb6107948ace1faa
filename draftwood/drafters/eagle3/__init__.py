"""EAGLE: the drafter, its heads (EAGLE-3's, and that of EAGLE-1 and EAGLE-2) and their checkpoints.

A P-EAGLE head is one of EAGLE-3 that reads masks; the drafter ``peagle`` drafts with it.

The head is a transformers model that :func:`draftwood.runner.attach.attach` accepts like any other.
"""

from draftwood.drafters.eagle3.drafter import PART

__all__ = ["PART"]
