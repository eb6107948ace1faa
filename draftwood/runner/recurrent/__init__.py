"""Recurrent layers over token trees: each node has the state of its path, in one pass.

A recurrent layer keeps one state for all earlier tokens. The nodes of a tree have different pasts,
so that a state would have to be kept for each of them. These rules compute what every node gets
without such states: the published forms for chunks of text, with sums along paths instead of
cumulative sums, and with the ancestors of a node in place of all tokens before it. They return what
a later commit needs of each node, a few vectors. "STree" (2025, arXiv 2505.14969) has the form for
Mamba-2, "TreeWY" (2026, arXiv 2608.20961) that for gated DeltaNet.

They are functions of tensors. Sequences of a batch are padded; nodes are in topological order.
"""
