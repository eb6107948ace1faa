"""The widths of a draft level are those that gain most for all requests together."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from draftwood.policies.auto.levels import best_level, level_widths
from draftwood.protocols import LevelBid


def cost(nodes: int, requests: int) -> float:
    """One forward, a little for each node and for each request."""
    return 0.5 + 0.02 * nodes + 0.1 * (requests - 1) if nodes else 0.0


def net(bids: Sequence[LevelBid], chosen: Sequence[int]) -> float:
    asking = [i for i, width in enumerate(chosen) if width]
    gained = sum(sum(bids[i].gains[: chosen[i]]) - bids[i].further for i in asking)
    return gained - cost(sum(chosen), len(asking))


def best(bids: Sequence[LevelBid]) -> float:
    """Of all choices."""
    sizes = [range(len(bid.gains) + 1) for bid in bids]
    return max(net(bids, chosen) for chosen in product(*sizes))


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        # Neither pays for the forward, both do.
        ([[0.4], []], [0, 0]),
        ([[0.4], [0.4]], [1, 1]),
        ([[0.6], []], [1, 0]),
        # A node that gains less than it costs is left out, and so is a request.
        ([[0.6, 0.03, 0.01], [0.4]], [2, 1]),
        ([[0.9], [0.11]], [1, 0]),
        ([[], []], [0, 0]),
    ],
)
def test_requests_share_a_forward(gains: list[list[float]], expected: list[int]) -> None:
    assert level_widths([LevelBid("draft", each) for each in gains], cost) == expected


def test_what_a_request_pays_to_take_part_is_its_own() -> None:
    pays = (([0.6, 0.5], 0.0), ([0.7, 0.5], 1.2), ([0.3], 0.1))
    bids = [LevelBid("draft", gains, further) for gains, further in pays]
    assert level_widths(bids, cost) == [2, 0, 1]
    assert level_widths(bids[1:2], cost) == [0]


def test_nobody_asks_where_nobody_could() -> None:
    assert level_widths([], cost) == []


def test_no_choice_is_much_better() -> None:
    random = np.random.default_rng(5)
    found, possible = [], []
    for _ in range(300):
        bids = [
            LevelBid(
                "draft",
                sorted(random.exponential(0.2, random.integers(0, 4)), reverse=True),
                float(random.choice([0.0, 0.1, 0.4])),
            )
            for _ in range(4)
        ]
        chosen = level_widths(bids, cost)
        assert all(0 <= width <= len(bid.gains) for width, bid in zip(chosen, bids, strict=True))
        found.append(net(bids, chosen))
        possible.append(best(bids))
        assert found[-1] >= 0.0
    assert sum(found) > 0.97 * sum(possible)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # A forward of the second source costs twice as much.
        ([[0.9], [0.9]], [[1.2], [1.2]], ("first", [1, 1])),
        ([[0.9], [0.9]], [[1.25], [1.25]], ("second", [1, 1])),
        # It is for all requests together: the best source of one may not be that of the batch.
        ([[0.9], []], [[0.3], [1.6]], ("second", [1, 1])),
        ([[0.4], []], [[0.9], []], ("first", [0, 0])),
    ],
)
def test_the_source_that_gains_most_is_next(
    first: list[list[float]], second: list[list[float]], expected: tuple[str, list[int]]
) -> None:
    bids = {
        name: [LevelBid(name, gains) for gains in own]
        for name, own in (("first", first), ("second", second))
    }

    def costs(source: str, nodes: int, requests: int) -> float:
        return cost(nodes, requests) * (1 + (source == "second"))

    assert best_level(bids, costs) == expected
