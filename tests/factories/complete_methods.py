"""Methods and drafters with what they need beyond their defaults."""

from collections.abc import Callable
from pathlib import Path

from draftwood.methods import method
from draftwood.protocols import DrafterSpec

TEXT = str(Path(__file__).with_name("grammars.py"))
"""A file to draft from; any would do."""


def complete(name: str) -> str:
    """The spelling of a method, with files for its drafters where they need some."""
    return ":".join([name, *(f"{setting}={TEXT}" for setting in method(name).missing)])


def complete_spec(part: Callable[..., DrafterSpec]) -> DrafterSpec:
    """A drafter's settings, with files if it needs some."""
    missing = part().missing
    return part(**{missing: (TEXT,)}) if missing else part()
