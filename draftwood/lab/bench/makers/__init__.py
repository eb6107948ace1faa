"""Searches that make values of a setting for a pair of models, such as a static tree.

A setting names one by its module here (``searched_by``). Such a module has a function
``make(place, settings)``: ``place`` is a path beside which it writes, ``settings`` say on which
models and prompts to search. It returns the values, the published one first, and takes files that
are there already as they are.
"""

from pathlib import Path

from draftwood.lab.bench.settings import Settings
from draftwood.methods import registry


def make(name: str, place: Path, settings: Settings) -> tuple[str, ...]:
    """The values that the search of this name finds.

    Args:
        name: of a module here.
        place: files are written beside it.
        settings: models, prompts and sampling.
    """
    found: tuple[str, ...] = registry.part(__name__, name, "make")(place, settings)
    return found
