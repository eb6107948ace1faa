"""Searches for values of a setting that depend on a pair of models, such as a static tree.

A setting names its search by a module here (``searched_by``) with a function
``make(place, settings)``: it writes files beside the path ``place`` and returns the values, the
published one first. Existing files are used as they are.
"""

from pathlib import Path

from draftwood.lab.bench.settings import Settings
from draftwood.methods import registry


def make(name: str, place: Path, settings: Settings) -> tuple[str, ...]:
    """Values found by a search.

    Args:
        name: name of a module here.
        place: path beside which files are written.
        settings: models, prompts and sampling.
    """
    found: tuple[str, ...] = registry.part(__name__, name, "make")(place, settings)
    return found
