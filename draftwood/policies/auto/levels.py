"""The next draft level: which source drafts it, and about how many nodes of each request.

One forward of a draft model serves all requests of a batch, so the widths are chosen for all
together: those that gain the most expected tokens, net of the tokens that could be generated in the
forward's time and of what each request pays to take part. Of several sources the one that gains the
most in this way is next. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

from draftwood.protocols import LevelBid


def best_level(
    bids: Mapping[str, Sequence[LevelBid]], cost: Callable[[str, int, int], float]
) -> tuple[str, list[int]]:
    """The source whose level gains the most, and its widths (:func:`level_widths`).

    Args:
        bids: by source, one or more.
        cost: of a draft forward of a source over so many nodes of so many requests.
    """
    costs = {source: partial(cost, source) for source in bids}
    widths = {source: level_widths(own, costs[source]) for source, own in bids.items()}
    best = max(bids, key=lambda source: _net(bids[source], widths[source], costs[source]))
    return best, widths[best]


def _net(
    bids: Sequence[LevelBid], widths: Sequence[int], cost: Callable[[int, int], float]
) -> float:
    """What these widths gain, net of the forward and of what requests pay to take part."""
    asked = [(bid, width) for bid, width in zip(bids, widths, strict=True) if width]
    gained = sum(sum(bid.gains[:width]) - bid.further for bid, width in asked)
    return gained - cost(sum(widths), len(asked))


def level_widths(bids: Sequence[LevelBid], cost: Callable[[int, int], float]) -> list[int]:
    """How many of its nodes each request is to ask about; 0 for all if nothing pays.

    Nodes are taken in the order of their gains. What a request pays to take part is spread over as
    many of its first nodes as make the best of it. That is the best choice where a forward costs
    the same for each node, whichever request's it is.

    Args:
        bids: of the requests that could ask.
        cost: of a draft forward over so many nodes of so many requests, in the unit of the gains;
            no larger forward costs less.
    """
    share = cost(2, 2) - cost(2, 1) if len(bids) > 1 else 0.0
    nodes = [(-value, i, gain) for i, bid in enumerate(bids) for value, gain in _values(bid, share)]
    nodes.sort(key=lambda node: node[:2])
    left = sum(gain for _, _, gain in nodes)
    counts, found = [0] * len(bids), [0] * len(bids)
    gained, requests, best = 0.0, 0, 0.0
    for taken, (_, i, gain) in enumerate(nodes, 1):
        if not counts[i]:
            requests += 1
            gained -= bids[i].further
        counts[i] += 1
        gained += gain
        left -= gain
        net = gained - cost(taken, requests)
        if net > best:
            best, found = net, counts.copy()
        if net + left <= best:  # what is left would have to be free
            break
    return found


def _values(bid: LevelBid, share: float) -> Iterator[tuple[float, float]]:
    """What each node is worth, best first, and its gain.

    The first ones are worth their mean gain, net of what the request pays and of its share of the
    forward; there are as many of them as have the largest mean.
    """
    gains = [gain for gain in bid.gains if gain > 0.0]
    net = accumulate(gains, initial=-bid.further - share)
    next(net)
    means = [total / count for count, total in enumerate(net, 1)]
    first = means.index(max(means)) + 1 if means else 0
    for place, gain in enumerate(gains):
        yield (means[first - 1] if place < first else gain), gain
