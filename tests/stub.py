"""``python -m tests.stub`` writes ``draftwood/__init__.pyi``, the types of the package's names.

Type checkers and editors read it. A test compares it with the recipes.
"""

import inspect
import textwrap
import types
import typing
from pathlib import Path

import draftwood
from draftwood.integrations.functions import docstring, python_name, signature
from draftwood.methods import recipes
from draftwood.protocols import Recipe

STUB = Path(draftwood.__file__).with_suffix(".pyi")
HEADER = '''"""Lossless tree speculative decoding for any Hugging Face causal language model.

Written by ``python -m tests.stub``.
"""

from typing import Any, Literal

from transformers import PreTrainedModel
'''


def written() -> str:
    """What the stub should say."""
    homes: dict[str, str] = vars(draftwood)["_HOMES"]
    imports = [f"from draftwood.{homes[n]} import {n} as {n}" for n in sorted(homes)]
    names = ", ".join(f'"{name}"' for name in draftwood.__all__)
    functions = [declared(recipe) for recipe in recipes().values()]
    return "\n".join(
        [HEADER, *imports, "", "__version__: str", f"__all__ = [{names}]", "", *functions]
    )


def declared(recipe: Recipe) -> str:
    """The function of a method, as a stub declares it."""
    found = signature(recipe)
    parameters = "".join(
        f"    {p.name}: {named(p.annotation)} = {p.default!r},\n" for p in found.parameters.values()
    )
    doc = textwrap.indent(f'"""{docstring(recipe)}"""', "    ", lambda line: bool(line.strip()))
    return f"def {python_name(recipe.name)}(\n    *,\n{parameters}) -> CustomGenerate:\n{doc}\n"


def named(annotation: object) -> str:
    """A type as it is written."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return " | ".join(named(option) for option in typing.get_args(annotation))
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return inspect.formatannotation(annotation).replace("typing.", "")


if __name__ == "__main__":
    STUB.write_text(written(), encoding="utf-8")
