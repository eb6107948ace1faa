"""Methods by name: what a user types, looked up and spelt out."""

from functools import cache
from importlib.metadata import entry_points

from draftwood.builtin import BUILT_IN
from draftwood.errors import DraftwoodError
from draftwood.recipes import Method, Recipe
from draftwood.settings import parse


@cache
def recipes() -> dict[str, Recipe]:
    """All recipes by name, third parties' (entry points ``draftwood.methods``) included."""
    own = {recipe.name: recipe for recipe in BUILT_IN}
    return own | {point.name: point.load() for point in entry_points(group="draftwood.methods")}


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        DraftwoodError: there is none.
    """
    if name not in recipes():
        raise DraftwoodError(f"unknown method {name!r}: choose from {', '.join(recipes())}")
    return recipes()[name]


def method(text: str, **options: object) -> Method:
    """A method from its name and settings, e.g. ``method("goose:budget=16:bypass=off")``.

    Settings may be spelt in ``text``, behind colons, or given as keyword arguments, where a
    drafter's ``source.field`` is written ``source__field``. ``draft`` names a draft model (a path,
    a hub id or, as a keyword, a loaded model), ``head`` an EAGLE-3 head and ``drafter`` which
    registered drafter answers; any other source may be given another drafter by its own name, as
    in ``method("goose:adjacency=model:draft=PATH")``.

    Raises:
        DraftwoodError: the name or a setting is unknown, or a value is out of range.
    """
    if not isinstance(text, str):
        raise DraftwoodError(f"a method is named by text such as 'goose:budget=16', not {text!r}")
    name, *spelt = text.split(":")
    values = recipe(name).given({key.replace("__", "."): v for key, v in options.items()})
    pairs = [item.partition("=") for item in spelt]
    chosen = recipe(name).bound({**{key: value for key, _, value in pairs}, **values})
    known = chosen.settings()
    for item, (key, equals, value) in zip(spelt, pairs, strict=True):
        if not equals or key not in known:
            raise DraftwoodError(
                f"method {name!r} has no setting {item!r}: write name=value with one of "
                f"{', '.join(known)}"
            )
        values[key] = parse(known[key], value)
    return chosen.build(values)
