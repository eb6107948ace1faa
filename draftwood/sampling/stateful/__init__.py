"""Logits processors that keep state, asked along the paths of a tree.

``generate`` calls a processor once for each position, in order, and some count on it: xgrammar's
accepts the last token at every call, SynthID's keeps a window of what it saw. On a tree a processor
is asked about siblings, and about nodes that are rejected. :class:`Retraced` shows it, along every
path, the calls that ``generate`` would have made.
"""

from draftwood.sampling.stateful.retraced import Retraced

__all__ = ["Retraced"]
