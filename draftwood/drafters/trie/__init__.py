"""The trie: a tree of how the ends of the text were continued, in this and in earlier requests.

Its index and its trees are those of SGLang's NGRAM speculative decoding.
"""

from draftwood.drafters.trie.drafter import PART

__all__ = ["PART"]
