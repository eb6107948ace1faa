"""Methods by name: finds the recipe, reads the given settings, and builds the method."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from draftwood.errors import DraftwoodError, did_you_mean
from draftwood.methods import registry
from draftwood.methods.recipe import Method, bound, build, check_names, given, settings_of
from draftwood.methods.settings import parse
from draftwood.protocols import Recipe


def names() -> list[str]:
    """Sorted names of all methods, third parties' included."""
    return sorted({*registry.recipe_files(), *registry.third_party("methods")})


def recipes() -> dict[str, Recipe]:
    """All recipes by name: first the methods that need no draft model, then the others."""
    found = map(recipe, names())
    return {each.name: each for each in sorted(found, key=lambda each: each.needs_model)}


@cache
def recipe(name: str) -> Recipe:
    """The recipe of that name; of all policies, its own alone is imported.

    Raises:
        DraftwoodError: there is none.
    """
    if name not in names():
        near = did_you_mean(name, names()) or f"choose from {', '.join(names())}"
        raise DraftwoodError(f"unknown method {name!r}: {near}")
    if name in registry.third_party("methods"):
        theirs: Recipe = registry.third_party("methods")[name].load()
        return theirs
    policy = registry.recipe_files()[name]
    own: tuple[Recipe, ...] = registry.part("draftwood.policies", policy, "RECIPES")
    found = next(each for each in own if each.name == name)
    return replace(found, policy=found.policy or policy)


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
    return _made(text, {}, given(recipe(text.partition(":")[0]), values))


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
    return build(chosen, found)


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
    chosen = bound(recipe(name), {**texts, **values})
    known = settings_of(chosen)
    check_names(name, [*texts, *values], known)
    return chosen, {key: parse(known[key], value) for key, value in texts.items()} | dict(values)
