"""Settings: the fields of a part, each with a help text and a range.

A part (the settings of a drafter, a policy, a verifier) is a frozen dataclass. :func:`setting`
declares a field of it, from which flags, documentation and checks are made.
"""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Any, Literal, TypeAlias

from draftwood.errors import DraftwoodError

Asked: TypeAlias = Literal["chains", "trees", "successors"]
"""What a policy asks a drafter for: chains or trees that it copies, or successors that it ranks."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of a part.

    Attributes:
        name: of the field.
        type: as annotated; the values of a ``Literal`` are the only ones.
        default: its value where no other is given.
        help: one line.
        flag: name of the setting in every method, whichever source its part answers, such as
            ``draft`` for the path of a draft model; None: the source's name and its own.
        search: values that ``draftwood search`` tries; empty: the default alone.
        searched_by: module of :mod:`draftwood.lab.bench.makers` that makes such values for a pair
            of models, the published one first; None: nothing does.
        source: what a policy asks the drafter for that the value names; None: it names none.
        least: lower bound, included; of a tuple, for each of its values. None: there is none.
        above: lower bound, excluded.
        most: upper bound, included.
        below: upper bound, excluded.
    """

    name: str
    type: Any
    default: object
    help: str = ""
    flag: str | None = None
    search: tuple[object, ...] = ()
    searched_by: str | None = None
    source: Asked | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def check(self, value: object) -> None:
        """Check a value of the setting's type against its range; None is in every range.

        Raises:
            DraftwoodError: it is out of range, or none of the choices.
        """
        choices = typing.get_args(self.type) if typing.get_origin(self.type) is Literal else ()
        if choices and value not in choices:
            raise DraftwoodError(
                f'{self.name} is "{value}"; give one of {", ".join(map(str, choices))}'
            )
        values = value if isinstance(value, tuple) else (value,)
        if not all(each is None or self._holds(each) for each in values):
            raise DraftwoodError(f"{self.name} is {value}; give {self._range()}")

    def _holds(self, value: Any) -> bool:
        # Written such that NaN is within no bound.
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def _range(self) -> str:
        bounds = {
            "at least": self.least,
            "more than": self.above,
            "at most": self.most,
            "less than": self.below,
        }
        return " and ".join(
            f"{word} {bound}" for word, bound in bounds.items() if bound is not None
        )


LARGEST_COUNT = 1 << 28
"""Bound of settings that count something: beyond any use, and within what arrays can have."""


def setting(
    default: object,
    help: str,
    *,
    flag: str | None = None,
    search: tuple[object, ...] = (),
    searched_by: str | None = None,
    source: Asked | None = None,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field that is a setting; see :class:`Setting`."""
    bounds = {"least": least, "above": above, "most": most, "below": below}
    uses = {"flag": flag, "search": search, "searched_by": searched_by, "source": source}
    return dataclasses.field(default=default, metadata={"help": help, **uses, **bounds})


class Part:
    """Base of the dataclasses whose fields are settings; construction checks their ranges."""

    def __post_init__(self) -> None:
        for each in settings(type(self)):
            each.check(getattr(self, each.name))


def settings(part: type) -> tuple[Setting, ...]:
    """The settings of a part: the fields of its dataclass, in order."""
    return _settings(part)


@cache
def _settings(part: Any) -> tuple[Setting, ...]:
    hints = _hints(part)
    return tuple(
        Setting(field.name, hints[field.name], field.default, **field.metadata)
        for field in dataclasses.fields(part)
        if field.init
    )


def _hints(part: type) -> dict[str, Any]:
    """The annotations of a part.

    A class that the part's module imports for type checkers only, so as not to load torch, becomes
    an empty class of that name.
    """
    absent: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(part, localns=absent)
        except NameError as error:
            if error.name in absent:
                raise
            absent[str(error.name)] = type(str(error.name), (), {})
