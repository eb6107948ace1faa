"""Draftwood: lossless tree speculative decoding for any Hugging Face causal language model.

Importing this package loads no model code: names are resolved when they are first used.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from draftwood.engine import Engine
    from draftwood.errors import DraftwoodError
    from draftwood.integrations.attachment import detach
    from draftwood.integrations.transformers import custom_generate, generate
    from draftwood.methods import method, recipes
    from draftwood.models import load
    from draftwood.recipes import Method, Recipe
    from draftwood.requests import Completion, Delta, Finished, Request, Stepped
    from draftwood.sampling import SamplingParams
    from draftwood.target.attach import attach
    from draftwood.tree import TokenTree

__all__ = [
    "Completion",
    "Delta",
    "DraftwoodError",
    "Engine",
    "Finished",
    "Method",
    "Recipe",
    "Request",
    "SamplingParams",
    "Stepped",
    "TokenTree",
    "attach",
    "custom_generate",
    "detach",
    "generate",
    "load",
    "method",
    "recipes",
]

_HOMES = {
    "Engine": "engine",
    "DraftwoodError": "errors",
    "custom_generate": "integrations.transformers",
    "detach": "integrations.attachment",
    "generate": "integrations.transformers",
    "Method": "methods",
    "Recipe": "methods",
    "method": "methods",
    "recipes": "methods",
    "load": "models",
    "Completion": "requests",
    "Delta": "requests",
    "Finished": "requests",
    "Request": "requests",
    "Stepped": "requests",
    "SamplingParams": "sampling",
    "attach": "target.attach",
    "TokenTree": "tree",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"draftwood.{_HOMES[name]}"), name)
    if importlib.util.find_spec(f"draftwood.{name}") is not None:
        return importlib.import_module(f"draftwood.{name}")
    if not name.startswith("_"):
        # draftwood.goose(budget=16) is draftwood.custom_generate("goose", budget=16).
        from draftwood.methods import recipes

        # Python has no hyphens in names: draftwood.opt_tree() is the method opt-tree.
        spelt = name if name in recipes() else name.replace("_", "-")
        if spelt in recipes():
            from functools import partial

            from draftwood.integrations.transformers import custom_generate

            return partial(custom_generate, spelt)
    raise AttributeError(f"module 'draftwood' has no attribute {name!r}")
