"""Finds parts by name: the file name is the part's name, its dataclass fields are its settings.

A drafter, policy or verifier is one module in ``draftwood/<kind>/`` that names its class in a
constant ``PART``; another distribution may offer one through the entry-point group
``draftwood.<kind>``. Parts are imported only when asked for, so this file depends on none.
"""

import dataclasses
import importlib
import importlib.util
import pkgutil
import types
import typing
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from draftwood.errors import DraftwoodError

Kind = Literal["drafters", "policies", "verifiers"]
KINDS: tuple[Kind, ...] = ("drafters", "policies", "verifiers")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of a part: ``name``, annotated ``type``, ``default`` and one line of ``help``."""

    name: str
    type: Any
    default: object
    help: str


@cache
def _third_party(kind: Kind) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"draftwood.{kind}")}


def names(kind: Kind) -> list[str]:
    """Sorted names of all parts of a kind, third parties' included."""
    package = importlib.import_module(f"draftwood.{kind}")
    own = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return sorted(own | set(_third_party(kind)))


def load(kind: Kind, name: str) -> type:
    """The class of a part.

    Raises:
        DraftwoodError: there is no part of that name.
    """
    if name not in names(kind):
        raise DraftwoodError(
            f"there is no {name!r} among {kind}: choose from {', '.join(names(kind))}"
        )
    module_name = f"draftwood.{kind}.{name}"
    if importlib.util.find_spec(module_name) is not None:
        part: type = importlib.import_module(module_name).PART
    else:
        part = _third_party(kind)[name].load()
    return part


def settings(part: type) -> list[Setting]:
    """The settings of a part: the fields of its dataclass, in order."""
    hints = typing.get_type_hints(part)
    return [
        Setting(field.name, hints[field.name], field.default, field.metadata.get("help", ""))
        for field in dataclasses.fields(part)
        if field.init
    ]


def parse(setting: Setting, text: str) -> object:
    """The value that ``text`` spells for a setting.

    Raises:
        DraftwoodError: the text is not of the setting's type.
    """
    try:
        return _parse(setting.type, text)
    except ValueError as error:
        raise DraftwoodError(f"{setting.name}={text!r}: {error}") from None


def _parse(kind: Any, text: str) -> object:
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        for choice in choices:
            if str(choice) == text:
                return choice
        raise ValueError(f"expected one of {', '.join(map(str, choices))}")
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_parse(item, part) for part in text.split("+"))
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        options = typing.get_args(kind)
        if text.lower() == "none" and type(None) in options:
            return None
        return _parse(next(o for o in options if o is not type(None)), text)
    if kind is bool:
        return _parse_bool(text)
    if kind in {int, float, str}:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"expected {kind.__name__}") from None
    raise ValueError(f"settings of type {kind} cannot be spelt as text")


def _parse_bool(text: str) -> bool:
    if text.lower() in {"true", "on", "yes", "1"}:
        return True
    if text.lower() in {"false", "off", "no", "0"}:
        return False
    raise ValueError("expected true or false")
