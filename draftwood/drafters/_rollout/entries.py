"""The KV cache entries of a draft model behind its committed tokens, for one sequence.

A growing tree is forwarded level by level. Its nodes are cached in the order of their forwards,
after the committed tokens that were not cached before. Nodes that no query expands are never
forwarded. (An *entry* is a token's place in the cache; a *slot* is a request's.)

All tokens here are the draft model's. With another tokenizer than the target's, a node of the
drafted tree may have several entries, of which the last one is meant, or share its parent's.
"""

from collections.abc import Sequence

from draftwood.drafters._rollout.reading import Reader
from draftwood.tree import ROOT, TreeBuilder


class RolloutEntries:
    """The KV cache entries of one step of one sequence.

    Args:
        pending: committed tokens that are not cached, oldest first, one or more; the last is the
            tree's root.
        reader: makes the draft model's tokens of the drafted tree's.

    Attributes:
        tree: the forwarded tokens as a tree whose node i is entry i: ``pending`` as a chain, then
            nodes of the drafted tree.
        root: entry of the drafted tree's root.
    """

    def __init__(self, pending: Sequence[int], reader: Reader) -> None:
        self._reader = reader
        self.tree = TreeBuilder(pending[0])
        self.root = self.tree.add_chain(pending[1:], "pending")
        self._entry = {ROOT: self.root}

    def __len__(self) -> int:
        return len(self.tree)

    def entry(self, node: int) -> int:
        """The entry of a node of the drafted tree."""
        return self._entry[node]

    def append(self, grown: TreeBuilder, nodes: Sequence[int]) -> None:
        """Append ``nodes`` of the drafted tree and their missing ancestors."""
        self._append(grown, self._missing(grown, nodes))

    def append_generation(self, grown: TreeBuilder, nodes: Sequence[int]) -> None:
        """Append the nodes of :meth:`append` whose parents have an entry already."""
        missing = self._missing(grown, nodes)
        self._append(grown, [node for node in missing if grown.parents[node] in self._entry])

    def append_masks(self, token: int, count: int) -> None:
        """Append a chain of masks, under the draft model's own id, behind the root."""
        self.tree.add_chain([token] * count, "masks", self.root)

    def _missing(self, grown: TreeBuilder, nodes: Sequence[int]) -> list[int]:
        missing: set[int] = set()
        for start in nodes:
            node = start
            while node not in self._entry and node not in missing:
                missing.add(node)
                node = grown.parents[node]
        return sorted(missing)  # parents come before their children

    def _append(self, grown: TreeBuilder, nodes: Sequence[int]) -> None:
        for node in nodes:
            above = self._entry[grown.parents[node]]
            read, _ = self._reader.read([grown.tokens[node]])
            self._entry[node] = self.tree.add_chain(read, "drafted", above)

    def commit(self, committed: Sequence[int]) -> tuple[tuple[int, ...] | None, list[int]]:
        """The entries that a finished step keeps, and the committed tokens without an entry.

        Args:
            committed: tokens committed after the root.

        Returns:
            The entries to keep, without entry 0, as in a tree's path, or None if not even entry 0
            is kept; and the tokens to forward in the next step. The last token is always among
            them, as its logits are those of the next root.
        """
        tokens = [*self.tree.tokens[: self.root + 1], *committed]
        if len(tokens) == 1:
            return None, tokens
        kept = [0]
        for token in tokens[1:-1]:
            child = self.tree.child(kept[-1], token)
            if child is None:
                break
            kept.append(child)
        return tuple(kept[1:]), tokens[len(kept) :]
