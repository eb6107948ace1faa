"""The adjacency table: the target's own top-k successors of a token or a pair of tokens.

Source: GOOSE, Sections 4.1 and C.1 (two-tier table, aggressive harvesting). With ``bigram=False``
it is the table of Token Recycling. A prepared table, made by ``draftwood harvest``, adds what the
target said after other text.
"""

from draftwood.drafters.adjacency.drafter import PART

__all__ = ["PART"]
