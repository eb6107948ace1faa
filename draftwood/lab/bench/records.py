"""Frozen dataclasses as plain values that JSON holds, and back, exactly.

What a value becomes again is read off the annotations of its class: numbers, texts, ``None``,
literals, tuples, mappings and dataclasses of these. Mappings are written as lists of pairs, since
their keys need not be texts. Knows nothing of what the dataclasses mean.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import isabstract
from typing import Any, Literal, cast


def encode(value: object) -> Any:
    """The value in lists, objects, texts and numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return [[encode(key), encode(item)] for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def decode(kind: Any, plain: Any) -> Any:
    """The value of the annotated type ``kind`` that :func:`encode` gave ``plain`` for.

    Raises:
        KeyError: a field of a dataclass is missing.
        TypeError: the annotation or the value is none of those named above.
        ValueError: as for TypeError.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        values = {name: decode(k, plain[name]) for name, k in _hints(cast(type, kind)).items()}
        return cast(type, kind)(**values)
    if origin is Literal:
        return inner[inner.index(plain)]
    if origin in (typing.Union, types.UnionType):
        if type(plain) in inner:
            return plain
        (kind,) = (one for one in inner if one is not type(None))
        return decode(kind, plain)
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return tuple(decode(inner[0], item) for item in plain)
        return tuple(decode(one, item) for one, item in zip(inner, plain, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        # A Counter's annotation has its keys only; ours count calls as well as seconds.
        key, item = inner if len(inner) == 2 else (inner[0], int | float)
        made: Any = dict if isabstract(origin) else origin
        return made({decode(key, a): decode(item, b) for a, b in plain})
    if kind is float and type(plain) is int:
        return float(plain)
    if kind in {int, float, str, bool} and type(plain) is kind:
        return plain
    raise TypeError(f"{plain!r} is not of type {kind}")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    found = typing.get_type_hints(kind)
    return {f.name: found[f.name] for f in fields(kind)}
