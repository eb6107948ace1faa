"""Options derived from the fields of a dataclass of settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from draftwood.cli._options import PATH, stack
from draftwood.protocols.settings import Setting, settings

Command = Callable[..., None]
Decorator = Callable[[Command], Command]


def settings_flags(name: str, base: Any, without: tuple[str, ...] = ()) -> Decorator:
    """Options packed as ``name``: one for each setting of ``base`` that has a help text.

    Args:
        name: parameter of the command.
        base: a frozen dataclass of settings, whose values are the defaults.
        without: settings without an option.
    """
    flagged = [each for each in settings(type(base)) if each.help and each.name not in without]

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def pack(*run: Any, **given: Any) -> None:
            values = {each.name: given.pop(each.name) for each in flagged}
            function(*run, **given, **{name: replace(base, **values)})

        options: Decorator = stack(*(_option(each, getattr(base, each.name)) for each in flagged))
        return options(pack)

    return decorate


def _option(each: Setting, default: object) -> Decorator:
    """The option of a setting of type ``T`` or ``T | None``."""
    kind = (get_args(each.type) or (each.type,))[0]
    choices = click.Choice(get_args(kind)) if get_origin(kind) is Literal else None
    flag = f"--{each.name.replace('_', '-')}"
    if kind is bool:
        return click.option(flag, is_flag=True, default=default, help=each.help)
    return click.option(
        flag,
        default=default,
        show_default=default is not None,
        type=choices or {tuple[int, ...]: layers, Path: PATH}.get(kind, kind),
        help=each.help,
    )


def layers(text: str) -> tuple[int, ...]:
    """Layer numbers joined by ``+``.

    Raises:
        click.BadParameter: the text is something else.
    """
    try:
        return tuple(int(part) for part in text.split("+"))
    except ValueError:
        raise click.BadParameter(f"{text!r}: write layer numbers, such as 2+4+5.") from None
