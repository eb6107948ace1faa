"""Cells: order of forwarding, missing ancestors, and what a step keeps."""

from draftwood.drafters._rollout.entries import RolloutEntries
from draftwood.tree import ROOT, TreeBuilder


def grown() -> TreeBuilder:
    """0 -> {1, 2}, 1 -> {3}, 3 -> {4}, 2 -> {5}."""
    builder = TreeBuilder(50)
    one, two = builder.add(ROOT, 51, "d"), builder.add(ROOT, 52, "d")
    three = builder.add(one, 53, "d")
    builder.add(three, 54, "d")
    builder.add(two, 55, "d")
    return builder


def test_pending_tokens_come_first_as_a_chain() -> None:
    entries = RolloutEntries([48, 49, 50])
    assert len(entries) == 3
    assert entries.root == entries.entry(ROOT) == 2
    assert entries.tree.tokens == [48, 49, 50]
    assert entries.tree.parents == [-1, 0, 1]


def test_missing_ancestors_are_appended_and_no_node_twice() -> None:
    entries, tree = RolloutEntries([50]), grown()
    entries.append(tree, [ROOT])
    assert len(entries) == 1
    entries.append(tree, [5, 4])
    assert entries.tree.tokens == [50, 51, 52, 53, 54, 55]
    assert [entries.entry(node) for node in range(6)] == [0, 1, 2, 3, 4, 5]
    entries.append(tree, [4, 1])
    assert len(entries) == 6


def test_entries_follow_the_order_of_forwards() -> None:
    entries, tree = RolloutEntries([49, 50]), grown()
    entries.append(tree, [2])
    entries.append(tree, [3])
    assert entries.tree.tokens == [49, 50, 52, 51, 53]
    assert entries.tree.parents == [-1, 0, 1, 1, 3]
    assert [entries.entry(node) for node in (0, 2, 1, 3)] == [1, 2, 3, 4]


def test_a_commit_keeps_pending_tokens_and_accepted_entries() -> None:
    entries, tree = RolloutEntries([49, 50]), grown()
    entries.append(tree, [2])
    entries.append(tree, [3])
    assert entries.commit([51, 53, 54, 60]) == ((1, 3, 4), [54, 60])
    assert entries.commit([52, 60]) == ((1, 2), [60])
    assert entries.commit([60]) == ((1,), [60])


def test_the_next_root_is_pending_even_if_it_was_forwarded() -> None:
    entries, tree = RolloutEntries([50]), grown()
    entries.append(tree, [1])
    assert entries.commit([51]) == ((), [51])
