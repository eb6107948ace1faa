"""``draftwood methods``: lists the methods, their papers and settings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from textwrap import wrap

import click

from draftwood.cli._method_flags import shown
from draftwood.methods import recipe, recipes
from draftwood.methods.recipe import settings_of
from draftwood.methods.settings import kind_of
from draftwood.protocols import Recipe
from draftwood.protocols.settings import Setting

_EXAMPLES = """\b
Examples:
  draftwood methods
  draftwood methods goose
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List the methods, or the settings of method NAME."""
    width = shutil.get_terminal_size((80, 24)).columns
    lines = _overview(width) if name is None else _details(recipe(name), width)
    click.echo("\n".join(lines))


def _overview(width: int) -> Iterator[str]:
    column = max(map(len, recipes())) + 2
    for each in recipes().values():
        yield from _entry(each.name, each.summary, column, width)
    yield ""
    yield "'draftwood methods NAME' shows the settings of one."


def _details(chosen: Recipe, width: int) -> Iterator[str]:
    yield f"{chosen.name}: {chosen.summary}"
    yield ""
    drafters = ", ".join(
        f"{source}: {drafter}" if chosen.binds(source) else f"{source}: none unless given"
        for source, drafter in chosen.drafters.items()
    )
    facts = {
        "Paper": chosen.paper if chosen.paper != "-" else "none",
        "Policy": chosen.policy,
        "Drafters": drafters or "none",
        "Verifier": chosen.verifier,
    }
    for label, value in facts.items():
        yield from _entry(f"{label}:", value, len("Drafters:  "), width)
    yield ""
    yield f"Settings, as --NAME VALUE, or as {chosen.name}:name=value with _ for -:"
    for flag, setting in settings_of(chosen).items():
        yield ""
        yield f"--{flag.replace('_', '-')} {_values(setting)}  [default: {shown(setting.default)}]"
        yield from _entry("", setting.help, 4, width)


def _values(setting: Setting) -> str:
    return "PATH" if setting.flag else kind_of(setting.type)


def _entry(label: str, text: str, column: int, width: int) -> Iterator[str]:
    """A label with its text beside it, wrapped at words."""
    first, *rest = wrap(text, max(20, width - column)) or [""]
    yield f"{label:{column}}{first}".rstrip()
    for line in rest:
        yield " " * column + line
