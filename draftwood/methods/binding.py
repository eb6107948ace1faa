"""Binds the sources of a method to drafters, by the method's options.

``drafter=KIND`` binds the source named ``draft``. Any other source is bound by its own name, as in
``adjacency=model``. A model's path binds a source too: ``draft=PATH`` names a draft model and
``head=PATH`` an EAGLE-3 head, whichever source drafts with it. The ``flag`` of a drafter's setting
is the option of its path.
"""

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from draftwood.errors import DraftwoodError
from draftwood.methods import registry
from draftwood.protocols import DrafterSpec
from draftwood.protocols.recipe import DRAFT, Recipe
from draftwood.protocols.settings import Setting, settings


def binder(source: str) -> str:
    """The option that binds a drafter to a source."""
    return "drafter" if source == DRAFT else source


@cache
def model_flags() -> dict[str, tuple[str, Setting]]:
    """Options that name a model, each with the registered drafter that uses it and its setting."""
    found = {
        setting.flag: (kind, setting)
        for kind in registry.names("drafters")
        for setting in settings(registry.load("drafters", kind))
        if setting.flag is not None
    }
    return dict(sorted(found.items()))


def bindings(
    method: str,
    drafters: Mapping[str, str],
    optional: Collection[str],
    options: Mapping[str, object],
) -> dict[str, str]:
    """The sources that the options give a drafter, with its registered name.

    Args:
        method: name of the method, for messages.
        drafters: source to registered drafter, as the method has them.
        optional: sources that are not asked unless an option binds them.
        options: everything that was set.

    Raises:
        DraftwoodError: there is no such drafter, or a model is named that no source drafts with.
    """
    found = {
        source: _known(binder(source), str(options[binder(source)]))
        for source in drafters
        if binder(source) in options
    }
    given = {flag: kind for flag, (kind, _) in model_flags().items() if flag in options}
    implied: dict[str, str] = {}
    for flag, kind in given.items():
        _refuse_kind(flag, options[flag])
        answered = {**drafters, **found}
        takers = [source for source, drafter in answered.items() if drafter == kind]
        if any(source in found or source not in optional for source in takers):
            continue
        free = takers or [source for source in drafters if source == DRAFT and source not in found]
        implied |= {source: kind for source in free if source not in implied}
    answered = {**drafters, **found, **implied}
    for flag, kind in given.items():
        if kind not in answered.values():
            raise DraftwoodError(_unused(method, flag, drafters, options))
    return found | implied


def further_drafters(recipe: Recipe, options: Mapping[str, object]) -> dict[str, str]:
    """The further sources that the options name, each with the registered drafter of its name.

    Raises:
        DraftwoodError: there is no such drafter, it drafts with a model, or does not say what it
            knows of its candidates.
    """
    given = options.get(recipe.further) or recipe.presets.get(recipe.further) or ()
    names = given.split("+") if isinstance(given, str) else [*map(str, cast("Any", given))]
    text = "+".join(names)
    found = {
        name: _known(name, str(options.get(name, name)))
        for name in names
        if name and name not in recipe.drafters
    }
    for flag, (kind, _) in model_flags().items():
        if kind in found.values():
            raise DraftwoodError(
                f"{recipe.further}={text}: the drafter {kind!r} has a model: write {flag}=PATH"
            )
    for kind in found.values():
        if not cast(type[DrafterSpec], registry.load("drafters", kind)).evidence:
            raise DraftwoodError(
                f"{recipe.further}={text}: the drafter {kind!r} declares no evidence of its "
                "candidates, so nothing could be learnt of them (docs/add-a-part.md)"
            )
    return found


def _known(option: str, kind: str) -> str:
    kinds = registry.names("drafters")
    if kind in kinds:
        return kind
    paths = ", ".join(f"{flag}=PATH" for flag in model_flags())
    raise DraftwoodError(
        f"there is no {kind!r} among drafters: write {option}= with one of {', '.join(kinds)}; "
        f"a model's path is {paths}"
    )


def _refuse_kind(flag: str, value: object) -> None:
    if isinstance(value, str) and value in registry.names("drafters") and not Path(value).exists():
        raise DraftwoodError(
            f"{flag}={value}: {value!r} is a kind of drafter, not the path of a model: "
            f"write drafter={value}"
        )


def _unused(
    method: str, flag: str, drafters: Mapping[str, str], options: Mapping[str, object]
) -> str:
    value = options[flag]
    shown = value if isinstance(value, str) else "MODEL"
    kind = model_flags()[flag][0]
    if DRAFT not in drafters:
        instead = f"use --method auto --{flag} {shown}"
        if "adjacency" in drafters:
            instead += f", or {method}:adjacency={kind}:{flag}={shown}"
        return f"{method} drafts without a model: {instead}"
    if "drafter" in options:
        return (
            f"{flag}={shown} needs drafter={kind}, but drafter={options['drafter']} was given: "
            "leave one out"
        )
    both = " and ".join(f"{name}=" for name in model_flags() if name in options)
    return f"{both} were given, and {method} drafts with one model: leave one out"
