"""The methods as functions: ``draftwood.goose(budget=16)``, generated from their recipes.

Signature and docstring come from the recipe's settings, so they equal those of the command line.
"""

import inspect
from collections.abc import Callable
from textwrap import fill
from typing import Any

from draftwood import methods
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import CustomGenerate, custom_generate
from draftwood.methods.recipe import settings_of
from draftwood.protocols import Recipe


def python_name(name: str) -> str:
    """A method's or setting's name as a Python identifier."""
    return name.replace("-", "_").replace(".", "__")


def function(name: str) -> Callable[..., CustomGenerate]:
    """The function that creates the method ``name``.

    Raises:
        DraftwoodError: there is no such method.
    """
    recipe = methods.recipe(name)

    def make(*misplaced: object, **settings: object) -> CustomGenerate:
        if misplaced:
            call = f"draftwood.{make.__name__}()"
            raise DraftwoodError(
                f"{call} takes its settings by keyword and makes a method: write "
                f"custom_generate={call}, with the parentheses"
            )
        return custom_generate(name, **settings)

    made: Any = make
    made.__name__ = made.__qualname__ = python_name(name)
    made.__module__ = "draftwood"
    made.__doc__ = docstring(recipe)
    made.__signature__ = signature(recipe)
    return make


def signature(recipe: Recipe) -> inspect.Signature:
    """The signature: every setting as a keyword with type and default."""
    return inspect.Signature(
        [
            inspect.Parameter(
                python_name(name),
                inspect.Parameter.KEYWORD_ONLY,
                default=setting.default,
                annotation=setting.type | None if setting.default is None else setting.type,
            )
            for name, setting in settings_of(recipe).items()
        ],
        return_annotation=CustomGenerate,
    )


def docstring(recipe: Recipe) -> str:
    """The docstring: the method's summary, its paper, and one entry per setting."""
    named = "" if recipe.paper == "-" else f"\n\nSource: {recipe.paper}."
    entries = "\n".join(
        _wrapped(f"{python_name(name)}: {setting.help}.", 4 * " ", 8 * " ")
        for name, setting in settings_of(recipe).items()
    )
    summary = f"{recipe.summary[:1].upper()}{recipe.summary[1:]}."
    return f"{_wrapped(summary)}{named}\n\nArgs:\n{entries}\n"


def _wrapped(text: str, first: str = "", others: str = "") -> str:
    return fill(
        text,
        92,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )
