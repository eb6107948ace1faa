"""Text and numbers as HTML: everything that comes from a document goes through here.

What models write may be anything: marks of HTML, control characters, half characters, marks that
turn the direction of text.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape

from draftwood.lab.bench.intervals import Estimate

UNKNOWN = "–"


def text(value: str) -> str:
    """Harmless in an element and in a quoted attribute; what cannot be printed is spelt out."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else spelt(c) for c in value))


def spelt(character: str) -> str:
    """An unprintable character as Python writes it."""
    return repr(character)[1:-1]


def number(value: float | None, form: str) -> str:
    """The number in this format, or a dash."""
    return UNKNOWN if value is None else form.format(value)


def interval(value: Estimate, form: str, between: str = "–") -> str:
    """The ends of the interval, or nothing."""
    if value.low is None or value.high is None:
        return ""
    return f"{form.format(value.low)}{between}{form.format(value.high)}"


def plain_value(value: object) -> str:
    """Any value of a JSON file; objects become lists of terms."""
    if isinstance(value, Mapping):
        return terms(value) if value else UNKNOWN
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not any(isinstance(item, Mapping) for item in value):
            return ", ".join(map(plain_value, value)) or UNKNOWN
        return "<br>".join(map(plain_value, value))
    if value is None:
        return UNKNOWN
    return text(value if isinstance(value, str) else json.dumps(value))


def terms(values: Mapping[str, object]) -> str:
    """A list of terms and what they are."""
    lines = (
        f"<dt>{text(str(key))}</dt><dd>{plain_value(value)}</dd>" for key, value in values.items()
    )
    return f"<dl>{''.join(lines)}</dl>"
