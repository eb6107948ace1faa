"""Methods by name: what a user types, looked up and spelt out."""

from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import entry_points

from draftwood.errors import DraftwoodError, did_you_mean
from draftwood.methods.builtin import BUILT_IN
from draftwood.methods.recipe import Method, Recipe
from draftwood.methods.settings import parse


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
        near = did_you_mean(name, recipes()) or f"choose from {', '.join(recipes())}"
        raise DraftwoodError(f"unknown method {name!r}: {near}")
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
    values = {key.replace("__", "."): value for key, value in options.items()}
    return _made(text, {}, recipe(text.partition(":")[0]).given(values))


def spelt(text: str, settings: Mapping[str, str]) -> Method:
    """A method from its spelling and further settings, spelt as text too; the latter win.

    Raises:
        DraftwoodError: the name or a setting is unknown, or a value is out of range.
    """
    return _made(text, settings, {})


def check(text: str) -> None:
    """Check a spelling without building its parts, of which some load torch.

    Raises:
        DraftwoodError: the name or a setting is unknown, or a value is not of its type.
    """
    _read(text, {}, {})


def spellings(text: str) -> list[str]:
    """The methods of a comma-separated list, each once, checked as :func:`check` does.

    Raises:
        DraftwoodError: there is none, or one of them is wrong.
    """
    found = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise DraftwoodError(f"{text!r} names no method: 'draftwood methods' lists them")
    for each in found:
        check(each)
    return found


def _made(text: str, further: Mapping[str, str], values: dict[str, object]) -> Method:
    chosen, found = _read(text, further, values)
    return chosen.build(found)


def _read(
    text: str, further: Mapping[str, str], values: Mapping[str, object]
) -> tuple[Recipe, dict[str, object]]:
    """The recipe, bound, and every setting that is given."""
    name, *items = text.split(":")
    pairs = [item.partition("=") for item in items]
    for key, equals, _ in pairs:
        if not equals:
            raise DraftwoodError(
                f"{text!r}: write a setting as name=value, such as {name}:{key}=..."
            )
    texts = {key: value for key, _, value in pairs} | dict(further)
    chosen = recipe(name).bound({**texts, **values})
    known = chosen.settings()
    for key in [*texts, *values]:
        if key not in known:
            raise DraftwoodError(_no_setting(name, key, known))
    return chosen, {key: parse(known[key], value) for key, value in texts.items()} | dict(values)


def _no_setting(name: str, key: str, known: Collection[str]) -> str:
    near = did_you_mean(key, known)
    rest = f": {near}" if near else ""
    return f"method {name!r} has no setting {key!r}{rest} ('draftwood methods {name}' lists them)"
