"""Stateful logits processors on the paths of a tree.

``generate`` calls a processor once per position, in order, and some processors rely on it:
xgrammar's accepts the last token at every call, SynthID's keeps a window of tokens. A tree has
siblings and rejected nodes. :class:`PathProcessor` makes, along every path, the calls that
``generate`` would make.
"""

from draftwood.sampling.stateful.path_processor import PathProcessor

__all__ = ["PathProcessor"]
