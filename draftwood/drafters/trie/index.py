"""A trie of the n-grams of texts: every run of at most ``depth`` tokens is a path from its root."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias


class Node:
    """An n-gram.

    Attributes:
        count: how often it occurs.
        used: when it was counted last; larger is later.
        children: by the next token.
    """

    __slots__ = ("children", "count", "used")

    def __init__(self) -> None:
        self.count, self.used = 0, 0
        self.children: dict[int, Node] = {}


Place: TypeAlias = tuple[Node, ...]
"""The nodes of one n-gram in several tries."""


class Text:
    """A growing text in a trie of its own.

    Args:
        depth: tokens of the longest n-gram.
    """

    def __init__(self, depth: int) -> None:
        self.tokens: list[int] = []
        self._depth = depth
        self._root = Node()
        self._ends: list[Node] = []  # of the text's ends, the shortest first

    def extend(self, tokens: Iterable[int], now: int) -> None:
        """Append tokens, and count the n-grams that end with each."""
        for token in tokens:
            self.tokens.append(token)
            ends = []
            for node in (self._root, *self._ends[: self._depth - 1]):
                below = node.children.get(token)
                if below is None:
                    below = node.children[token] = Node()
                below.count += 1
                below.used = now
                ends.append(below)
            self._ends = ends

    def end(self, length: int) -> Node | None:
        """The node of the text's last ``length`` tokens; None if it has fewer."""
        return self._ends[length - 1] if length <= len(self._ends) else None


class Texts:
    """The n-grams of finished texts.

    Args:
        depth: tokens of the longest n-gram.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._root = Node()

    def add(self, tokens: Sequence[int], now: int) -> None:
        """Count the n-grams of a text whose last token is the latest of all."""
        begun = now - len(tokens)
        for start in range(len(tokens)):
            node = self._root
            for place, token in enumerate(tokens[start : start + self._depth], start + 1):
                below = node.children.get(token)
                if below is None:
                    below = node.children[token] = Node()
                below.count += 1
                below.used = max(below.used, begun + place)
                node = below

    @property
    def empty(self) -> bool:
        """Whether no text is left."""
        return not self._root.children

    def remove(self, tokens: Sequence[int]) -> None:
        """Count them no more; the text was added before."""
        for start in range(len(tokens)):
            node = self._root
            for token in tokens[start : start + self._depth]:
                below = node.children[token]
                below.count -= 1
                if not below.count:
                    del node.children[token]
                    break  # what is below occurs no more often
                node = below

    def find(self, tokens: Sequence[int]) -> Node | None:
        """The node of an n-gram; None if it does not occur."""
        node = self._root
        for token in tokens:
            below = node.children.get(token)
            if below is None:
                return None
            node = below
        return node


def count(place: Place) -> int:
    """How often an n-gram occurs in all tries."""
    return sum(node.count for node in place)


def used(place: Place) -> int:
    """When it was counted last."""
    return max(node.used for node in place)


def successors(place: Place) -> Mapping[int, Place]:
    """The longer n-grams in all tries, by their last token."""
    found: dict[int, Place] = {}
    for node in place:
        for token, below in node.children.items():
            found[token] = (*found.get(token, ()), below)
    return found
