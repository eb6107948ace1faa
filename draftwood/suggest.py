"""Did you mean: the known word that is nearest to a mistyped one."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"did you mean 'x'?"``, or ``""`` if no known word is near."""
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""
