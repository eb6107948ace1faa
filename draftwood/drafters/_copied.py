"""The tokens of a copy."""

from collections.abc import Sequence


def copied(text: Sequence[int], place: int, most: int, *, wrap: bool) -> tuple[int, ...]:
    """``most`` tokens of a text from ``place`` on; fewer at the end of the text.

    With ``wrap`` the copy goes on with its own tokens there, as in a text that repeats them.
    """
    tokens = tuple(text[place : place + most])
    if wrap and len(tokens) < most:
        return (tokens * (most // len(tokens) + 1))[:most]
    return tokens
