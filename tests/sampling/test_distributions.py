"""q at the nodes of a tree, from the drafters that they were drawn from."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from draftwood.sampling.distributions import TreeProposals
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder


class Canned:
    """A drafter whose q under a handle is that number, everywhere."""

    def __init__(self, scale: int) -> None:
        self.scale = scale
        self.asked: list[tuple[int, list[int]]] = []

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        self.asked.append((slot, list(q_rows)))
        return torch.tensor([[float(self.scale * row)] * 3 for row in q_rows])


def grown() -> TokenTree:
    builder = TreeBuilder(7)
    for node, (source, handle) in enumerate([("a", 4), ("b", 5), ("a", 6), ("b", 4)]):
        builder.add(ROOT, node, source, draw=Draw.IID, q_row=handle)
    return builder.build()


@pytest.mark.parametrize(
    ("nodes", "expected", "asked"),
    [
        ([2], [50], {"b": [[5]]}),
        ([1, 3], [4, 6], {"a": [[4, 6]]}),
        ([4, 1, 2, 3], [40, 4, 50, 6], {"b": [[4, 5]], "a": [[4, 6]]}),
    ],
)
def test_each_drafter_is_called_once_for_its_own_nodes(
    nodes: list[int], expected: list[float], asked: dict[str, list[list[int]]]
) -> None:
    drafters: dict[str, Any] = {"a": Canned(1), "b": Canned(10)}
    found = TreeProposals(drafters, 3, grown()).probabilities(nodes)
    assert found.tolist() == [[number] * 3 for number in expected]
    for source, drafter in drafters.items():
        assert drafter.asked == [(3, handles) for handles in asked.get(source, [])]
