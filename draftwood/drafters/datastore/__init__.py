"""The datastore: ranks what followed the end of the text in given files, by frequency.

Source: REST (He et al., 2024, arXiv 2311.08252), Section 3. The files' tokens are indexed once by a
suffix array. A step looks up the longest suffix of the text that occurs in them, of 16 tokens or
fewer. The continuations of its occurrences form a trie, whose nodes are ranked by their counts.
"""

from draftwood.drafters.datastore.drafter import PART

__all__ = ["PART"]
