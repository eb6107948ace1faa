"""The discount on copied candidates: what a copied token is worth where the copy goes on.

If a step leaves out the end of a copy, the next step drafts those tokens, and they are as likely as
before. So where a copy goes on, a further node mostly saves the time of steps like this one, and
not of average ones, which commit fewer tokens. Let E be the expected tokens of a step with n copied
nodes, and G the tokens that the request commits on average in its time. If every copied token is
accepted with one probability, the whole copy takes the least time, relative to the tokens of
average steps, with the n of the smallest

    (G - 1) / (E - 1),

and maximising E - G has this n if copied nodes are worth that many tokens each. Of a copy that
never ends it would be G / E, which is smallest where a step has the most tokens per second. On
recorded answers of SmolLM2, :data:`_FREE` half way between the two was the fastest. Pure.
"""

from collections.abc import Callable, Collection, Sequence

_FREE = 0.5
"""Tokens of a step that count as generated without drafts: 1 of a copy whose end is followed by an
average step, 0 of one that never ends."""


def copy_discount(
    path: Sequence[float],
    copied: Collection[int],
    tokens: Callable[[int], float],
    price: float,
    most: int,
) -> float:
    """Value of a copied candidate in tokens, over its path probability; 1 at most.

    Args:
        path: probability of each node of a pool, with all its ancestors; 1 for the root.
        copied: nodes that a copy passes; the root is not among them.
        tokens: that the request commits on average in the time of a step, by its nodes.
        price: least path probability of another candidate that is drafted.
        most: nodes that are drafted.
    """
    if not copied:
        return 1.0
    others = [p for node, p in enumerate(path) if p >= price and node not in copied][1:]
    likeliest = sorted((path[node] for node in copied), reverse=True)
    discount, expected = 1.0, 1.0 + sum(others)
    room = max(0, most - len(others))
    for nodes, probability in enumerate(likeliest[:room], len(others) + 1):
        expected += probability
        discount = min(discount, (tokens(nodes) - _FREE) / (expected - _FREE))
    return discount
