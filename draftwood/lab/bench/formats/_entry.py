"""What passes between a source of rows, a format and the prompts: rows in, entries out.

Knows no format and no file. The three readers of a member say where a bad one stands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from draftwood.errors import DraftwoodError

Values = Mapping[str, object]


@dataclass(frozen=True)
class Row:
    """A line of a file, an item of an array, a row of a dataset.

    Attributes:
        where: its place, for messages: file and line.
        number: its place among the rows of its source, from 0.
        values: its members by key.
    """

    where: str
    number: int
    values: Values


@dataclass(frozen=True)
class Entry:
    """A prompt before it belongs to a set; see :class:`draftwood.lab.bench.prompts.Prompt`."""

    id: str
    task: str
    turns: tuple[str, ...]
    dialogue: bool


@dataclass(frozen=True)
class Format:
    """How the rows of one published shape become prompts.

    Attributes:
        required: keys that every row has.
        shape: all that a row must have, in words.
        entry: the prompt in a row, given the name of the set; raises a DraftwoodError that begins
            with the row's place if a member cannot be used.
        set_name: name of the set, from all of its rows and the name of their source.
        fits: what must hold of a row's values beside the keys.
        overrides: taken even where another format knows the row as well.
    """

    required: tuple[str, ...]
    shape: str
    entry: Callable[[Row, str], Entry]
    set_name: Callable[[Sequence[Row], str], str]
    fits: Callable[[Values], bool] = lambda _: True
    overrides: bool = False

    def knows(self, values: Values) -> bool:
        """Whether a row has this shape."""
        return all(key in values for key in self.required) and self.fits(values)


def text(row: Row, key: str) -> str:
    """A member that must be a text and not empty."""
    value = row.values.get(key)
    if not isinstance(value, str):
        raise DraftwoodError(f"{row.where}: {key!r} is missing or not a text")
    if not value:
        raise DraftwoodError(f"{row.where}: {key!r} is empty: write a text, or leave the row out")
    return value


def texts(row: Row, key: str) -> tuple[str, ...]:
    """A member that must be a list of texts, at least one and none empty."""
    value = row.values.get(key)
    if not isinstance(value, list) or not value:
        raise DraftwoodError(f"{row.where}: {key!r} must be a list of texts")
    if not all(isinstance(item, str) and item for item in value):
        raise DraftwoodError(f"{row.where}: {key!r} must be a list of texts, none of them empty")
    return tuple(value)


def label(row: Row, key: str) -> str:
    """A member that names the row: a number or a text."""
    value = row.values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise DraftwoodError(f"{row.where}: {key!r} must be a number or a text")
    return str(value)
