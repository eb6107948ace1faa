"""A policy's file that is put beside those of the package."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import draftwood.policies
from draftwood.methods import recipe, registry


@contextmanager
def added_policy(folder: Path, name: str, code: str) -> Iterator[None]:
    """While it lasts, the registry finds ``folder/name.py``, which holds ``code``."""
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    registry.recipe_files.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draftwood.policies, "__path__", [*draftwood.policies.__path__, str(folder)])
        yield
    sys.modules.pop(f"draftwood.policies.{name}", None)
    registry.recipe_files.cache_clear()
    recipe.cache_clear()
