"""The mark on figures from looping texts, and its footnote.

Drafters that copy predict loops well, so such figures do not transfer to other texts.
"""

from draftwood.lab.loops import LOOPING, SIZE

MARK = "†"


def marked(shown: str, looping_texts: int) -> str:
    """A figure with the mark, if one of its texts loops."""
    return f"{shown}{MARK}" if looping_texts and any(c.isdigit() for c in shown) else shown


def note(texts: int, looping_texts: int, share: float | None) -> str:
    """Footnote of the mark for a set of texts; empty if none of them loops.

    Args:
        texts: number of outputs.
        looping_texts: number of outputs that loop.
        share: share of repeated 8-grams over all outputs.
    """
    if not looping_texts:
        return ""
    return (
        f"{MARK} {looping_texts} of {texts} outputs loop ({LOOPING:.0%} or more of an output's "
        f"token {SIZE}-grams occur earlier in it; here {share or 0:.0%} of all), which drafters "
        "that copy predict well"
    )
