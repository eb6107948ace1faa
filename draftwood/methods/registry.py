"""Finds parts by name: the file name is the part's name.

A drafter, policy or verifier is one module or package in ``draftwood/<kind>/`` that names
its class in a constant ``PART``; names that begin with ``_`` are no parts. Another distribution may
offer one through the entry-point group ``draftwood.<kind>``. Parts are imported only when asked
for, so this file depends on none.
"""

import importlib
import importlib.util
import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from draftwood.errors import DraftwoodError

Kind = Literal["drafters", "policies", "verifiers"]
KINDS: tuple[Kind, ...] = ("drafters", "policies", "verifiers")


@cache
def _third_party(kind: Kind) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"draftwood.{kind}")}


def names(kind: Kind) -> list[str]:
    """Sorted names of all parts of a kind, third parties' included."""
    package = importlib.import_module(f"draftwood.{kind}")
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    own = {name for name in modules if not name.startswith("_")}
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
