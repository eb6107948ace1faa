"""The discount on copied candidates: what a copied token is worth where the copy goes on.

What one step leaves out of a copy, the next one can still draft, and it is as likely as before. So
where a copy goes on, a further node mostly saves the time of steps like this one, and not of
average ones, which commit fewer tokens. Let E be the expected tokens of a step with n copied nodes,
and G the tokens that the request commits on average, plus what the step's nodes cost more than
usual, in tokens. If every copied token is accepted with one probability, the whole copy takes the
least time, relative to the tokens of average steps, with the n of the smallest

    (G - 1) / (E - 1).

If each copied node counts as so many tokens, this n is also the one of the largest value minus G.
Of a copy that never ends it would be G / E, which is smallest where a step has the most tokens per
second. On recorded answers of SmolLM2, half way between the two was the fastest. Pure.
"""

from collections.abc import Callable, Sequence

_FREE = 0.5
"""Tokens of a step that count as generated without drafts: 1 of a copy whose end is followed by an
average step, 0 of one that never ends."""


def copy_discount(
    copied: Sequence[float], others: Sequence[float], tokens: Callable[[int], float], most: int
) -> float:
    """Value of a copied candidate in tokens, over its path probability; 1 at most, above 0.

    Args:
        copied: path probabilities of the copied candidates.
        others: of the other candidates that are drafted.
        tokens: G by the nodes of the step, one at least.
        most: nodes that are drafted.
    """
    room = max(0, most - len(others))
    discount, expected = 1.0, 1.0 + sum(others)
    likeliest = sorted(copied, reverse=True)[:room]
    for nodes, probability in enumerate(likeliest, len(others) + 1):
        expected += probability
        discount = min(discount, (tokens(nodes) - _FREE) / (expected - _FREE))
    return discount
