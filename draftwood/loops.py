"""Tells whether a text has fallen into a loop. Knows token ids only.

Small models under greedy decoding end up repeating themselves, and a loop is
what any drafter that copies predicts perfectly; so training reports how often
it happens, and a benchmark can set such outputs apart.
"""

from collections.abc import Sequence

_REPEATS = 3
_LEAST_TOKENS = 24


def looping(tokens: Sequence[int]) -> bool:
    """Whether ``tokens`` ends in one block said three times or more, 24 tokens or more in all.

    The last block need not be complete: ``a b c a b c a b c a`` counts as the
    block ``c a b`` thrice. A single token repeated 24 times is a loop as well.
    """
    count = len(tokens)
    for period in range(1, count // _REPEATS + 1):
        repeated = 0
        at = count - 1 - period
        while at >= 0 and tokens[at] == tokens[at + period]:
            repeated += 1
            at -= 1
        if period + repeated >= max(_REPEATS * period, _LEAST_TOKENS):
            return True
    return False
