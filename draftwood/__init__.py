"""Draftwood: lossless tree speculative decoding for any Hugging Face causal language model.

Importing this package loads no model code: names are resolved when they are first used. Their types
are in ``__init__.pyi``, which ``python -m tests.stub`` writes.
"""

import importlib
import sys

__version__ = "0.1.0"

_HOMES = {
    "Completion": "engine.request",
    "CustomGenerate": "integrations.transformers",
    "Delta": "engine.request",
    "DraftwoodError": "errors",
    "Engine": "engine.engine",
    "Finished": "engine.request",
    "Grammar": "grammars.grammar",
    "Method": "methods.recipe",
    "Recipe": "protocols.recipe",
    "Request": "engine.request",
    "SamplingParams": "sampling.params",
    "Session": "engine.session",
    "Stepped": "engine.request",
    "TokenLogprob": "engine.logprobs",
    "TokenTree": "tree",
    "attach": "runner.attach",
    "custom_generate": "integrations.transformers",
    "detach": "runner.attach",
    "embedded": "models",
    "generate": "integrations.transformers",
    "load": "models",
    "method": "methods",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    found: object
    if name in _HOMES:
        found = getattr(importlib.import_module(f"draftwood.{_HOMES[name]}"), name)
    elif not name.startswith("__") and name in (methods := _methods()):
        from draftwood.integrations.functions import function

        found = function(methods[name])
    else:
        raise AttributeError(
            f"module 'draftwood' has no attribute {name!r}",
            name=name,
            obj=sys.modules[__name__],
        )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*_HOMES, *_methods(), *(n for n in globals() if n.startswith("__"))])


def _methods() -> dict[str, str]:
    """The methods by their names in Python; their policies are not imported."""
    from draftwood.methods import names

    return {name.replace("-", "_"): name for name in names()}
