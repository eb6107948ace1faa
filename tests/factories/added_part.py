"""A part's file that is put beside those of the package."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftwood.methods import recipe, registry


@contextmanager
def added_part(folder: Path, kind: registry.Kind, name: str, code: str) -> Iterator[None]:
    """While it lasts, the registry finds ``folder/name.py``, which holds ``code``."""
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    package = importlib.import_module(f"draftwood.{kind}")
    registry.recipe_files.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "__path__", [*package.__path__, str(folder)])
        yield
    sys.modules.pop(f"draftwood.{kind}.{name}", None)
    registry.recipe_files.cache_clear()
    recipe.cache_clear()
