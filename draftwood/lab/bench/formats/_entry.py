"""Rows of prompt sets, the entries made of them, and checked access to a row's members."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from draftwood.errors import DraftwoodError

Values = Mapping[str, object]


@dataclass(frozen=True)
class SourceRow:
    """A line of a file, an item of an array, a row of a dataset.

    Attributes:
        where: file and line, for messages.
        number: index in its source, from 0.
        values: members by key.
    """

    where: str
    number: int
    values: Values


@dataclass(frozen=True)
class Entry:
    """A prompt without its set; see :class:`draftwood.lab.bench.prompts.Prompt`."""

    id: str
    task: str
    turns: tuple[str, ...]
    dialogue: bool
    completion: bool = False


@dataclass(frozen=True)
class Format:
    """Conversion of one published format to prompts.

    Attributes:
        required: keys that every row has.
        shape: the required members, in words.
        entry: makes a row's prompt, given the set's name; a DraftwoodError about an invalid member
            begins with the row's location.
        set_name: name of the set, from its rows and the name of their source.
        fits: further condition on a row's values.
        overrides: whether this format is chosen if another one fits as well.
    """

    required: tuple[str, ...]
    shape: str
    entry: Callable[[SourceRow, str], Entry]
    set_name: Callable[[Sequence[SourceRow], str], str]
    fits: Callable[[Values], bool] = lambda _: True
    overrides: bool = False

    def knows(self, values: Values) -> bool:
        """Whether a row has this format."""
        return all(key in values for key in self.required) and self.fits(values)


def text(row: SourceRow, key: str) -> str:
    """A member that must be a non-empty string."""
    value = row.values.get(key)
    if not isinstance(value, str):
        raise DraftwoodError(f"{row.where}: {key!r} is missing or not a text")
    if not value:
        raise DraftwoodError(f"{row.where}: {key!r} is empty: write a text, or leave the row out")
    return value


def texts(row: SourceRow, key: str) -> tuple[str, ...]:
    """A member that must be a non-empty list of non-empty strings."""
    value = row.values.get(key)
    if not isinstance(value, list) or not value:
        raise DraftwoodError(f"{row.where}: {key!r} must be a list of texts")
    if not all(isinstance(item, str) and item for item in value):
        raise DraftwoodError(f"{row.where}: {key!r} must be a list of texts, none of them empty")
    return tuple(value)


def label(row: SourceRow, key: str) -> str:
    """A member that identifies the row: a number or a string."""
    value = row.values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise DraftwoodError(f"{row.where}: {key!r} must be a number or a text")
    return str(value)
