"""The commands, options and calls that a page of the documentation names, and what is wrong with
them."""

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pkgutil import iter_modules

import click

from draftwood import cli, methods
from draftwood.cli._method_flags import MethodCommand
from draftwood.errors import DraftwoodError
from draftwood.lab.bench import peers
from draftwood.methods import registry
from draftwood.methods.recipe import settings_of
from draftwood.protocols.settings import settings

_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_START = re.compile(r"^(?:\S*/)?draftwood (?=[a-z-])")
_ENDS = ("|", ">", "&&", ";", "&")
_MODELS = ("--draft", "--head")


def spans(markdown: str) -> list[str]:
    """The code within lines of a page."""
    outside = re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return _SPAN.findall(outside)


def commands(markdown: str) -> Iterator[str]:
    """The commands that a page names: in blocks of code and within lines."""
    joined = re.sub(r"\\\n\s*", " ", markdown)
    lines = [line.strip() for line in joined.splitlines()]
    for text in (*lines, *(span.strip() for span in spans(markdown))):
        if _START.match(text):
            yield _START.sub("draftwood ", text)


def wrong_command(line: str) -> list[str]:
    """What is wrong with a command: unknown commands, options and methods."""
    words = list(_words(line))[1:]
    found: click.Command | None = cli.cli
    context = click.Context(cli.cli, info_name="draftwood")
    while isinstance(found, click.Group):
        if not words or words[0].startswith("-") or not words[0].islower():
            return _unknown(line, words, _own(found))
        name, *words = words
        found = found.get_command(context, name.rstrip(","))
    if found is None:
        return [f"{line}: there is no such command"]
    known = _own(found)
    if isinstance(found, MethodCommand):
        try:
            recipes = found.methods(words)
        except DraftwoodError as error:
            return [f"{line}: {error}"]
        known |= {_flag(key) for recipe in recipes.values() for key in settings_of(recipe)}
    return [*_unknown(line, words, known), *_wrong_methods(line, words)]


def wrong_options(text: str) -> list[str]:
    """What is wrong with options of ``draftwood generate`` or ``draftwood serve``.

    Without a method they are settings of any.
    """
    tries = [wrong_command(f"draftwood {name} {text}") for name in ("generate", "serve MODEL")]
    if all(tries) and "--method" not in text:
        tries.append(_unknown(text, list(_words(text)), any_setting()))
    return min(tries, key=len)


@cache
def any_setting() -> frozenset[str]:
    """The options that settings of any method and any drafter are."""
    found = {key for recipe in methods.recipes().values() for key in settings_of(recipe)}
    for name in registry.names("drafters"):
        found |= {f"{name}.{each.name}" for each in settings(registry.load("drafters", name))}
    return frozenset(map(_flag, found))


def wrong_calls(code: str) -> list[str]:
    """What is wrong with calls of methods as functions, such as ``draftwood.goose(budget=16)``."""
    try:
        tree = ast.parse(code if not code.startswith("custom_generate=") else f"f({code})")
    except SyntaxError:
        return []
    names = {name.replace("-", "_"): name for name in methods.names()}
    found = []
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        function = ast.unparse(call.func)
        name = names.get(function.removeprefix("draftwood."))
        if not function.startswith("draftwood.") or name is None:
            continue
        known = {key.replace(".", "__") for key in settings_of(methods.recipe(name))}
        given = {str(each.arg) for each in call.keywords}
        found += [f"{code}: {name} has no setting {each}" for each in sorted(given - known)]
    return found


def _words(line: str) -> Iterator[str]:
    """The words of a command; models are named MODEL, so that no hub is asked for them."""
    before = ""
    for word in shlex.split(line, comments=True):
        if word.startswith(_ENDS):
            return
        yield "MODEL" if before in _MODELS else word
        before = word


def _own(command: click.Command) -> set[str]:
    found = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return found | {"--help", "-h"}


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _unknown(line: str, words: Iterable[str], known: Iterable[str]) -> list[str]:
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [f"{line}: there is no {each} here" for each in given if each not in set(known)]


def _wrong_methods(line: str, words: list[str]) -> list[str]:
    """Unknown methods and settings behind ``--methods``."""
    others = {each.name.replace("_", "-") for each in iter_modules(peers.__path__)}
    found = []
    for word, following in pairwise(words):
        if word not in ("--methods", "--method"):
            continue
        for text in following.split(","):
            name = text.partition(":")[0]
            if name in others or not name.islower():
                continue
            try:
                methods.check(text)
            except DraftwoodError as error:
                found.append(f"{line}: {error}")
    return found
