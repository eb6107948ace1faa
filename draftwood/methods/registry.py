"""Finds parts by name: the file name is the part's name.

A drafter, policy or verifier is one module or package in ``draftwood/<kind>/`` that names its class
in a constant ``PART``. A policy's ``RECIPES`` are the methods that use it. Another distribution may
offer a part through the entry-point group ``draftwood.<kind>``, and a recipe through
``draftwood.methods``. A part is imported when it is asked for, so this file depends on none.
"""

import ast
import importlib
import importlib.util
import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from draftwood.errors import DraftwoodError

Kind = Literal["drafters", "policies", "verifiers"]
KINDS: tuple[Kind, ...] = ("drafters", "policies", "verifiers")


def parts(package: str) -> tuple[str, ...]:
    """Sorted names of the parts in a package; a file whose name begins with ``_`` is no part."""
    return _parts_in(tuple(importlib.import_module(package).__path__))


@cache  # a method's settings ask hundreds of times
def _parts_in(folders: tuple[str, ...]) -> tuple[str, ...]:
    found = pkgutil.iter_modules(folders)
    return tuple(sorted(each.name for each in found if not each.name.startswith("_")))


def part(package: str, name: str, constant: str) -> Any:
    """The constant of that name in a part's file."""
    return getattr(importlib.import_module(f"{package}.{name}"), constant)


@cache
def third_party(group: str) -> dict[str, EntryPoint]:
    """The entry points of other distributions in the group ``draftwood.<group>``, by name."""
    return {point.name: point for point in entry_points(group=f"draftwood.{group}")}


def names(kind: Kind) -> list[str]:
    """Sorted names of all parts of a kind, third parties' included."""
    return sorted({*parts(f"draftwood.{kind}"), *third_party(kind)})


def load(kind: Kind, name: str) -> type:
    """The class of a part.

    Raises:
        DraftwoodError: there is no part of that name.
    """
    if name not in names(kind):
        raise DraftwoodError(
            f"there is no {name!r} among {kind}: choose from {', '.join(names(kind))}"
        )
    found: type
    if name in parts(f"draftwood.{kind}"):
        found = part(f"draftwood.{kind}", name, "PART")
    else:
        found = third_party(kind)[name].load()
    return found


@cache
def recipe_files() -> dict[str, str]:
    """Draftwood's own recipes by name, each with the policy in whose file it stands.

    The names are read from the files' text, so that decoding with one method imports the policy of
    no other one.

    Raises:
        DraftwoodError: a recipe's name is no literal string.
    """
    return {
        name: policy
        for policy in parts("draftwood.policies")
        for name in _recipe_names(_file(policy))
    }


def _recipe_names(file: Path) -> list[str]:
    calls = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Recipe"
    ]
    names = []
    for call in calls:
        given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "name")]
        if not given or not isinstance(given[0], ast.Constant):
            raise DraftwoodError(
                f"{file}, line {call.lineno}: the name of a recipe is read from the file without "
                'running it; write it as text, as in Recipe("mine", ...)'
            )
        names.append(str(given[0].value))
    return names


def _file(policy: str) -> Path:
    spec = importlib.util.find_spec(f"draftwood.policies.{policy}")
    assert spec is not None, "the package lists it"
    return Path(str(spec.origin))
