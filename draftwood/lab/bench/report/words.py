"""Text and numbers of the page.

A model may write anything: control characters, half characters, marks that turn the direction of
text. Jinja2 escapes HTML; :func:`printable` makes the rest harmless.
"""

from draftwood.lab.bench.intervals import Estimate, ends
from draftwood.lab.picture.layout import printable as escaped

UNKNOWN = "–"


def printable(value: str) -> str:
    """The text with escapes in place of unprintable characters, except line ends and tabs."""
    return escaped(value, "\n\t")


def number(value: float | None, form: str) -> str:
    """The number in this format, or a dash."""
    return UNKNOWN if value is None else form.format(value)


def interval(value: Estimate, form: str, between: str = "–") -> str:
    """The ends of the interval, or nothing."""
    return between.join(map(form.format, ends(value) or ()))
