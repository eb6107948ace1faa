"""The two libraries that Draftwood does not install by itself, imported when they are needed."""

import importlib
from typing import Any

from draftwood.errors import DraftwoodError


def need(name: str) -> Any:
    """The module ``name`` of llama-cpp-python (``llama_cpp``) or of ``gguf``.

    Raises:
        DraftwoodError: it is not installed, or its shared library cannot be loaded.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise DraftwoodError(
            "decoding with llama.cpp needs llama-cpp-python and gguf "
            f"(pip install 'draftwood[llamacpp]'): {error}"
        ) from error
