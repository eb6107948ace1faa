"""The mark on figures that were taken on looping texts, and what it means.

Whatever copies predicts a loop, so such a figure says little of other texts. Knows nothing of how
figures are shown.
"""

from draftwood.lab.loops import LOOPING, SIZE

MARK = "†"


def marked(shown: str, looping_texts: int) -> str:
    """A figure as it is shown, with the mark if a text loops on which it was taken."""
    return f"{shown}{MARK}" if looping_texts and any(c.isdigit() for c in shown) else shown


def note(texts: int, looping_texts: int, share: float | None) -> str:
    """What the mark means, for one set of texts; empty if none of them loops.

    Args:
        texts: how many outputs there are.
        looping_texts: how many of them loop.
        share: of all their 8-grams those that are repeated.
    """
    if not looping_texts:
        return ""
    return (
        f"{MARK} {looping_texts} of {texts} outputs loop ({LOOPING:.0%} or more of an output's "
        f"token {SIZE}-grams stand earlier in it; here {share or 0:.0%} of all), which whatever "
        "copies predicts well"
    )
