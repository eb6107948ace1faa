"""Commands that take a method, with the method's settings as options.

The settings depend on the method, so its name is looked up in the command line before click parses
it. Click then suggests the nearest option for an unknown one, and ``--method NAME --help`` lists
the settings of NAME.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click

from draftwood.cli._sections import Command, Option
from draftwood.errors import DraftwoodError
from draftwood.methods import recipe as recipe_of
from draftwood.methods import spelt
from draftwood.methods.binding import binder, model_flags, named_in
from draftwood.methods.recipe import Method, bound, settings_of
from draftwood.methods.settings import kind_of
from draftwood.protocols import Recipe
from draftwood.protocols.settings import Setting

F = TypeVar("F", bound=Callable[..., Any])

_GIVEN = "draftwood.methods.settings"
"""Key of the context's dict of given settings: name to text."""

_EXTRA = re.compile(r"Got unexpected extra arguments? \((\S+).*\)")
"""Click's message about a surplus argument."""

_HINTS = {
    "--prompt": "give the prompt as an argument, without an option's name",
    "--stream": "text is streamed as it is; --json gives it in one piece",
    "-n": "did you mean --max-new-tokens?",
    "-p": "give the prompt as an argument, without an option's name",
    "-m": "did you mean --model or --method?",
    "-v": "it goes before the command, as in 'draftwood -v generate ...'",
    "--verbose": "it goes before the command, as in 'draftwood --verbose generate ...'",
    "--max-tokens": "did you mean --max-new-tokens?",
    "--max-length": "did you mean --max-new-tokens?",
    "--draft-model": "did you mean --draft?",
    "--draft.model": "did you mean --draft?",
    "--draft-head": "did you mean --head?",
    "--assistant-model": "did you mean --draft?",
    "--temp": "did you mean --temperature?",
}
"""Options of other tools, and what to write instead."""


method_option = click.option(
    "--method",
    "name",
    cls=Option,
    section="Method",
    default="auto",
    show_default=True,
    help="Drafting method; 'draftwood methods' lists them.",
)


def method_options(function: F) -> F:
    """The options ``--budget``, ``--draft``, ``--head``, ``--drafter`` and ``--verifier``."""
    for name, metavar, text in reversed(_COMMON):
        function = click.option(
            f"--{name}",
            cls=Option,
            section="Method",
            metavar=metavar,
            help=text,
            expose_value=False,
            callback=_keep(name),
        )(function)
    return function


_COMMON = (
    ("budget", "INTEGER", "Most nodes drafted per step, root excluded."),
    ("draft", "PATH", "Draft model of the same family: a directory or a hub id."),
    (
        "head",
        "PATH",
        "EAGLE, Hydra, Medusa, DFlash or other head of the model: a directory or a hub id.",
    ),
    ("drafter", "KIND", "Kind of drafter, such as model or eagle3; --draft and --head imply it."),
    ("verifier", "RULE", "Accept rule: walk, rejection, block or traversal."),
)


class MethodCommand(Command):
    """A command with ``--method`` and every setting of that method as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add the method's settings to the options, then parse."""
        ctx.meta[_GIVEN] = {}
        methods: Mapping[str, Recipe] = {}
        try:
            methods = self.methods(args)
        except DraftwoodError:
            if not {"--help", "-h"}.intersection(args):
                raise
        own = {option for param in self.params for option in param.opts}
        ctx.meta[f"{_GIVEN}.options"] = list(_options(methods, own))
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = _HINTS.get(error.option_name)
            if hint is None:
                raise
            raise click.UsageError(f"No such option {error.option_name!r}: {hint}", ctx) from None
        except click.UsageError as error:
            rest = _EXTRA.fullmatch(error.message)
            if rest is None:
                raise
            message = f"unexpected argument {rest[1]!r}: quote a prompt that has spaces"
            raise click.UsageError(message, ctx) from None

    def methods(self, args: Sequence[str]) -> dict[str, Recipe]:
        """Recipes of the methods in ``args``, by name, with their sources bound."""
        default = next(p.default for p in self.params if "--method" in p.opts)
        method = str(_values(args).get("method", default))
        return _bound([method], self.settings(args))

    def settings(self, args: Sequence[str]) -> dict[str, str]:
        """Values in ``args`` that may be of settings: not of the command's own options."""
        own = {
            option.removeprefix("--").replace("-", "_")
            for param in self.params
            if param.expose_value
            for option in param.opts
        }
        return {name: value for name, value in _values(args).items() if name not in own}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's parameters and the method's settings."""
        settings: list[click.Parameter] = ctx.meta.get(f"{_GIVEN}.options", [])
        return super().get_params(ctx) + settings


class MethodsCommand(MethodCommand):
    """A command whose arguments are methods, with their settings as options."""

    def methods(self, args: Sequence[str]) -> dict[str, Recipe]:
        """Recipes of all methods among the arguments."""
        found = [word for word in args if _is_method(word)]
        return _bound(found, self.settings(args))


def method_of(ctx: click.Context, text: str) -> Method:
    """The method named by ``text`` (``goose:budget=16``), with the settings given as options.

    Raises:
        DraftwoodError: the method or a setting is unknown, or a value is out of range.
    """
    return spelt(text, ctx.meta[_GIVEN])


def settings_given(ctx: click.Context) -> Mapping[str, str]:
    """Settings given as options, name to text."""
    found: Mapping[str, str] = ctx.meta[_GIVEN]
    return found


def _is_method(word: str) -> bool:
    try:
        recipe_of(word.partition(":")[0])
    except DraftwoodError:
        return False
    return True


def _bound(texts: Iterable[str], given: Mapping[str, str]) -> dict[str, Recipe]:
    """Recipes of ``texts``, with sources bound by the texts and the options."""
    found = {}
    for text in texts:
        name, *items = text.split(":")
        recipe = recipe_of(name)
        in_text = {key: value for key, _, value in (item.partition("=") for item in items)}
        every = {**in_text, **given}
        further = [each for setting in recipe.further for each in named_in(recipe, setting, every)]
        binders = {*recipe.further, *map(binder, [*recipe.drafters, *further]), *model_flags()}
        options = {k: v for k, v in every.items() if k in binders}
        try:
            found[name] = bound(recipe, options)
        except DraftwoodError:
            found[name] = recipe  # refused later, when the method is made
    return found


def _values(args: Sequence[str]) -> dict[str, str]:
    """Values of ``--name value`` and ``--name=value`` in ``args``; the last one counts."""
    found = {}
    for word, following in zip(args, [*args, ""][1:], strict=True):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("-", "_")] = value if equals else following
    return found


def _options(methods: Mapping[str, Recipe], own: set[str]) -> Iterator[click.Option]:
    """An option for every setting that is not an option of the command itself."""
    seen = set(own)
    for name, recipe in methods.items():
        for key, setting in settings_of(recipe).items():
            flag = "--" + key.replace("_", "-")
            if flag not in seen:
                seen.add(flag)
                yield Option(
                    [flag, "setting_" + key.replace(".", "_")],
                    section=f"Settings of {name} (of another method: --method NAME --help)",
                    metavar="PATH" if setting.flag else kind_of(setting.type),
                    help=_help(setting),
                    expose_value=False,
                    callback=_keep(key),
                )


def _help(setting: Setting) -> str:
    default = "" if setting.default in (None, "") else f"  [default: {shown(setting.default)}]"
    return f"{setting.help[:1].upper()}{setting.help[1:]}.{default}"


def shown(value: object) -> str:
    """A setting's value, as typed on the command line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return "none" if value is None else str(value)


def _keep(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def keep(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.meta[_GIVEN][name] = value

    return keep
