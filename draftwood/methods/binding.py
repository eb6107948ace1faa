"""Binds the sources of a method to drafters, by the method's options.

``drafter=KIND`` binds the source named ``draft``. Any other source is bound by its own name, as in
``adjacency=model``. A model's path binds a source too: ``draft=PATH`` names a draft model and
``head=PATH`` a head, whichever source drafts with it. The ``flag`` of a drafter's setting is the
option of its path. Several drafters may have one flag: the model's ``config.json`` tells which of
them it is for.

A policy may draft with several models. Where ``draft`` and ``head`` are both given, the second one
is a source of its own, which has the name of its drafter. A setting of the policy names more of
them, as in ``neural=draft+eagle3``.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

from draftwood.errors import DraftwoodError
from draftwood.files import read_json
from draftwood.methods import registry
from draftwood.protocols import DrafterSpec
from draftwood.protocols.recipe import DRAFT, Recipe
from draftwood.protocols.settings import Setting, settings


def binder(source: str) -> str:
    """The option that binds a drafter to a source."""
    return "drafter" if source == DRAFT else source


@cache
def _takers() -> dict[str, list[tuple[str, Setting]]]:
    """The drafters of each option that names a model; those with a model by default come first."""
    found: dict[str, list[tuple[str, Setting]]] = {}
    for kind in registry.names("drafters"):
        for setting in settings(registry.load("drafters", kind)):
            if setting.flag is not None:
                found.setdefault(setting.flag, []).append((kind, setting))
    for takers in found.values():
        takers.sort(key=lambda taker: not taker[1].default)
    return dict(sorted(found.items()))


def model_flags() -> dict[str, tuple[str, Setting]]:
    """Options that name a model, each with a registered drafter that uses it and its setting.

    Of several drafters it is the one with a model by default; :func:`kind_of` tells them apart.
    """
    return {flag: takers[0] for flag, takers in _takers().items()}


def kinds_of(flag: str) -> list[str]:
    """The registered drafters whose model an option names."""
    return [kind for kind, _ in _takers()[flag]]


def kind_of(flag: str, value: object, bound: Collection[str] = ()) -> str:
    """The registered drafter that a model is for, by its ``config.json``.

    If that does not tell, it is one of ``bound`` that takes such models, or the first of
    :func:`kinds_of`.
    """
    first, *others = kinds_of(flag)
    config = _config(value) if others and isinstance(value, str) else {}
    for kind in others:
        if cast(type[DrafterSpec], registry.load("drafters", kind)).reads(config):
            return kind
    return next((kind for kind in bound if kind in (first, *others)), first)


def _config(name: str) -> Mapping[str, Any]:
    """The ``config.json`` of a directory or hub id; empty if it cannot be read."""
    path = Path(name) / "config.json"
    if not path.is_file() and "/" in name and not Path(name).exists():
        with suppress(OSError, ValueError):  # which may be otherwise the next time
            path = _downloaded(name)
    try:
        found = path.stat()
    except (OSError, ValueError):
        return {}
    return _read_config(path.resolve(), found.st_mtime_ns, found.st_size)


@cache
def _downloaded(name: str) -> Path:
    """The ``config.json`` of a hub id.

    Raises:
        OSError: there is none, or the hub cannot be reached.
        ValueError: it is no hub id.
    """
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(name, "config.json"))


@lru_cache(maxsize=32)
def _read_config(path: Path, changed: int, size: int) -> Mapping[str, Any]:  # noqa: ARG001
    """The content of a file, read again once it is changed; empty if it is no JSON object."""
    found: object = None
    with suppress(DraftwoodError):
        found = read_json(path)
    return found if isinstance(found, dict) else {}


def bindings(recipe: Recipe, options: Mapping[str, object]) -> dict[str, str]:
    """The sources that the options give a drafter, with its registered name.

    Args:
        recipe: with the further sources that the options name.
        options: everything that was set.

    Raises:
        DraftwoodError: there is no such drafter, or a model is named that no source drafts with.
    """
    drafters, optional = recipe.drafters, recipe.optional
    models = [name for name in named_in(recipe, recipe.models, options) if name not in optional]
    further = [drafters[name] for name in models if name in drafters]
    found = {
        source: _known(binder(source), str(options[binder(source)]))
        for source in drafters
        if binder(source) in options
    }
    given: dict[str, str] = {}
    implied: dict[str, str] = {}
    for flag in [flag for flag in model_flags() if flag in options]:
        _refuse_kind(flag, options[flag])
        asked = [kind for kind in (*found.values(), *further) if kind in kinds_of(flag)]
        kind = given[flag] = asked[0] if asked else kind_of(flag, options[flag], drafters.values())
        answered = {**drafters, **found}
        takers = [source for source, drafter in answered.items() if drafter == kind]
        if any(source in found or source not in optional for source in takers):
            continue
        alike = [source for source, drafter in drafters.items() if drafter in kinds_of(flag)]
        free = takers or [source for source in alike or [DRAFT] if source in drafters]
        implied |= {each: kind for each in free if each not in implied and each not in found}
    answered = {**drafters, **found, **implied}
    for flag, kind in given.items():
        if kind not in answered.values():
            if not recipe.models or recipe.models in options or "drafter" in options:
                raise DraftwoodError(_unused(recipe, flag, options))
            implied[kind] = kind
    return found | implied


def named_in(recipe: Recipe, setting: str, options: Mapping[str, object]) -> list[str]:
    """The sources that a setting for several of them names, in order."""
    given = options.get(setting) or recipe.presets.get(setting) or ()
    names = given.split("+") if isinstance(given, str) else map(str, cast("Any", given))
    return [name for name in names if name]


def further_drafters(recipe: Recipe, options: Mapping[str, object]) -> dict[str, str]:
    """The further sources that the options name, each with the registered drafter of its name.

    Raises:
        DraftwoodError: there is no such drafter; it has a model and is named among those without
            one, or the reverse; or it has none and does not say what it knows of its candidates.
    """
    found: dict[str, str] = {}
    for setting in recipe.further:
        names = named_in(recipe, setting, options)
        fresh = [name for name in names if name not in recipe.drafters]
        for name in fresh:
            kind = found[name] = _known(name, str(options.get(name, name)))
            wrong = _misplaced(recipe, setting, kind)
            if wrong:
                raise DraftwoodError(f"{setting}={'+'.join(names)}: the drafter {kind!r} {wrong}")
    return found


def _misplaced(recipe: Recipe, setting: str, kind: str) -> str:
    """Why a drafter cannot be a source that the setting names; empty: it can."""
    spec = cast(type[DrafterSpec], registry.load("drafters", kind))
    if setting == recipe.models:
        if spec.model is DrafterSpec.model:
            others = [each for each in recipe.further if each != setting]
            return f"has no model: name it in {' or '.join(others) or 'another setting'}"
        return ""
    flags = [flag for flag in model_flags() if kind in kinds_of(flag)]
    if flags:
        return f"has a model: write {flags[0]}=PATH" + (
            f", or name it in {recipe.models}" if recipe.models else ""
        )
    if not spec.evidence:
        return (
            "declares no evidence of its candidates, so nothing could be learnt of them "
            "(docs/add-a-part.md)"
        )
    return ""


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


def _unused(recipe: Recipe, flag: str, options: Mapping[str, object]) -> str:
    method, drafters, value = recipe.name, recipe.drafters, options[flag]
    shown = value if isinstance(value, str) else "MODEL"
    kind = kind_of(flag, value)
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
    if recipe.models in options:
        return (
            f"{flag}={shown} needs a source for {kind}, but {recipe.models}="
            f"{'+'.join(named_in(recipe, recipe.models, options))} was given: add {kind} to it"
        )
    both = " and ".join(f"{name}=" for name in model_flags() if name in options)
    return f"{both} were given, and {method} drafts with one model: leave one out"
