"""Values of settings: read from text, written as text, and checked as objects.

This turns the fields of the parts (:mod:`draftwood.protocols.settings`) into command-line flags.
"""

import os
import types
import typing
from contextlib import suppress
from numbers import Integral, Real
from typing import Any, Literal

from draftwood.errors import DraftwoodError
from draftwood.protocols.settings import Setting

_PLAIN = (bool, str, type(None))
# No loaded model is of one of these types, whatever class the setting wants.
_SPELT = (bool, int, float, str, bytes, tuple, list, dict, type(None))
_SHOWN = 60  # characters of a value that are repeated in a message


def kind_of(kind: Any) -> str:
    """The metavariable of an annotated type, e.g. ``INTEGER``, ``on|off`` or ``a|b``."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin is tuple:
        return f"{kind_of(inner[0])}[+{kind_of(inner[0])}...]"
    if origin in {typing.Union, types.UnionType}:
        none = "|none" if type(None) in inner else ""
        return kind_of(next(option for option in inner if option is not type(None))) + none
    return {bool: "on|off", int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")


_WORDS = {int: "an integer", float: "a number"}


def parse(setting: Setting, text: str) -> object:
    """The value that ``text`` spells for a setting.

    Raises:
        DraftwoodError: the text is not of the setting's type.
    """
    try:
        return _parse(setting.type, text)
    except ValueError as error:
        raise DraftwoodError(f"{setting.name}={text!r}: {error}") from None


def checked(setting: Setting, value: object) -> object:
    """A setting's value, given as an object, converted to the setting's type.

    Raises:
        DraftwoodError: the value is not of the setting's type.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    try:
        return _checked(setting.type, value)
    except ValueError as error:
        text = repr(value)
        shown = text if len(text) <= _SHOWN else type(value).__name__
        raise DraftwoodError(f"{setting.name}={shown}: {error}") from None


def _checked(kind: Any, value: Any) -> object:
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in options):
            raise ValueError(f"expected one of {', '.join(map(str, options))}")
        return value
    if origin is tuple:
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"expected a tuple of {options[0].__name__}")
        return tuple(_checked(options[0], item) for item in value)
    if origin in {typing.Union, types.UnionType}:
        for option in options:
            with suppress(ValueError):
                return _checked(object if option is Any else option, value)
        raise ValueError(f"expected {' or '.join(getattr(o, '__name__', str(o)) for o in options)}")
    number = not isinstance(value, bool)  # which Python counts among the integers
    if kind is int and number and isinstance(value, Integral):
        return int(value)
    if kind is float and number and isinstance(value, Real):
        return float(value)
    if isinstance(value, kind) if kind in _PLAIN else kind is Any or not isinstance(value, _SPELT):
        return value
    raise ValueError(f"expected {getattr(kind, '__name__', kind)}")


def _parse(kind: Any, text: str) -> object:
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        for choice in options:
            if str(choice) == text:
                return choice
        raise ValueError(f"expected one of {', '.join(map(str, options))}")
    if origin is tuple:
        return tuple(_parse(options[0], part) for part in _parts(text, options[0]))
    if origin in {typing.Union, types.UnionType}:
        if text.lower() == "none" and type(None) in options:
            return None
        return _parse(next(o for o in options if o is not type(None)), text)
    if kind is bool:
        return _parse_bool(text)
    if kind in {int, float, str}:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"expected {_WORDS[kind]}") from None
    raise ValueError(f"settings of type {kind} cannot be spelt as text")


def _parts(text: str, kind: Any) -> list[str]:
    """The values of a tuple; a path that exists is one, even with a plus sign in its name."""
    if not text or (kind is str and os.path.exists(text)):
        return [text] if text else []
    return text.split("+")


def _parse_bool(text: str) -> bool:
    if text.lower() in {"true", "on", "yes", "1"}:
        return True
    if text.lower() in {"false", "off", "no", "0"}:
        return False
    raise ValueError("expected on or off")
