"""A place in parsed JSON, which knows how it is called when what is there is not what should be.

Knows no document.
"""

import math
from collections.abc import Iterator, Mapping

from draftwood.errors import DraftwoodError


class Cursor:
    """A value and the keys that led to it.

    Every method raises a DraftwoodError that names the place if the value is of another kind.
    """

    def __init__(self, value: object, place: str = "") -> None:
        self._value = value
        self._place = place

    def __getitem__(self, key: str) -> "Cursor":
        found = self.mapping()
        if key not in found:
            raise DraftwoodError(f"the document has no {self._below(key)}")
        return Cursor(found[key], self._below(key))

    def maybe(self, key: str) -> "Cursor | None":
        """None if there is no such member: documents of earlier versions may lack it."""
        return self[key] if key in self.mapping() else None

    def __iter__(self) -> Iterator["Cursor"]:
        if not isinstance(self._value, list):
            raise self._wrong("a list")
        for i, value in enumerate(self._value):
            yield Cursor(value, f"{self._place}[{i}]")

    def items(self) -> Iterator[tuple[str, "Cursor"]]:
        for key, value in self.mapping().items():
            yield key, Cursor(value, self._below(key))

    def mapping(self) -> Mapping[str, object]:
        if not isinstance(self._value, Mapping):
            raise self._wrong("an object")
        return self._value

    def text(self) -> str:
        if not isinstance(self._value, str):
            raise self._wrong("a text")
        return self._value

    def flag(self) -> bool:
        if not isinstance(self._value, bool):
            raise self._wrong("true or false")
        return self._value

    def maybe_flag(self) -> bool | None:
        return None if self._value is None else self.flag()

    def whole(self) -> int:
        if not isinstance(self._value, int) or isinstance(self._value, bool):
            raise self._wrong("a whole number")
        return self._value

    def count(self) -> int:
        if self.whole() < 0:
            raise self._wrong("a whole number from 0 up")
        return self.whole()

    def maybe_count(self) -> int | None:
        return None if self._value is None else self.count()

    def number(self) -> float | None:
        """None if unknown."""
        if self._value is None:
            return None
        if not isinstance(self._value, int | float) or isinstance(self._value, bool):
            raise self._wrong("a number or null")
        if not math.isfinite(self._value):
            raise self._wrong("a finite number or null")
        return float(self._value)

    def amount(self) -> float:
        found = self.number()
        if found is None or found < 0:
            raise self._wrong("a number from 0 up")
        return found

    def _below(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key

    def _wrong(self, wanted: str) -> DraftwoodError:
        shown = repr(self._value)
        return DraftwoodError(
            f"the document's {self._place or 'top'} should be {wanted}, "
            f"and is {shown if len(shown) <= 60 else shown[:60] + '…'}"
        )
