"""Searches for values of a setting that depend on a pair of models, such as a static tree.

A setting names its search by a module here (``searched_by``) with a function
``make(place, settings, fresh=...)``: it writes files beside the path ``place`` and returns the
values, the published one first. Files that are there are replaced if the search is ``fresh``; else
an interrupted one goes on with them.
"""

from pathlib import Path

from draftwood.lab.bench.settings import Settings
from draftwood.methods import registry


def make(name: str, place: Path, settings: Settings, *, fresh: bool) -> tuple[str, ...]:
    """Values found by a search.

    Args:
        name: name of a module here.
        place: path beside which files are written.
        settings: models, prompts and sampling.
        fresh: search anew, whatever an earlier search left.
    """
    found: tuple[str, ...] = registry.part(__name__, name, "make")(place, settings, fresh=fresh)
    return found
