"""The settings of a method that ``draftwood search`` tries, as texts that name contenders.

Which settings those are, the method's parts and its recipe say themselves
(:class:`draftwood.methods.settings.Setting`). Knows nothing of runs.
"""

from collections.abc import Mapping, Sequence
from itertools import product

from draftwood.methods import method, recipe, recipes
from draftwood.methods.recipe import settings_of
from draftwood.protocols.settings import Setting, settings


def grid(name: str) -> dict[str, Setting]:
    """The settings of a recipe that are searched, by name; empty if there are none."""
    known = settings_of(recipe(name))
    return {key: each for key, each in known.items() if each.search or each.searched_by}


def searchable(given: Sequence[str]) -> list[str]:
    """The methods with something to search whose models are given and that need nothing else.

    Those that draft with layers of the target's own are left out: few targets have any.

    Args:
        given: names of settings that a run gives to all (``draft``, ``head``), as it has them.
    """
    return [
        name
        for name in recipes()
        if grid(name)
        and method(name).for_any_target
        and all(
            flag in given
            for flag, setting in settings_of(recipe(name)).items()
            if setting.flag is not None and _used(name, flag)
        )
    ]


def contenders(name: str, made: Mapping[str, Sequence[str]]) -> list[str]:
    """The method as published, then with every combination of the searched values.

    Args:
        name: of the recipe.
        made: values that a search of its own found for settings (``searched_by``), the published
            one first: it is part of the method as published.
    """
    found = grid(name)
    published = {key: made[key][0] for key, each in found.items() if each.searched_by}
    values = {key: made[key] if each.searched_by else each.search for key, each in found.items()}
    defaults = {key: published.get(key, each.default) for key, each in found.items()}
    texts = [spelt(name, published)]
    for chosen in product(*values.values()):
        here = dict(zip(values, chosen, strict=True))
        if here != defaults:
            texts.append(spelt(name, {k: v for k, v in here.items() if v != found[k].default}))
    return list(dict.fromkeys(texts))


def spelt(name: str, values: Mapping[str, object]) -> str:
    """The method with these settings, in the form that :func:`draftwood.methods.method` takes."""
    return ":".join([name, *(f"{key}={value}" for key, value in values.items())])


def _used(name: str, flag: str) -> bool:
    """Whether the method, unchanged, drafts with the model of this setting."""
    return any(
        setting.flag == flag
        for spec in method(name).drafters.values()
        for setting in settings(type(spec))
    )
