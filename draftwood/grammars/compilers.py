"""The compilers of grammars, one for each tokenizer and library.

A library reads all tokens of a vocabulary first, and what it read is kept with the tokenizer.
"""

from __future__ import annotations

from importlib import import_module
from threading import Lock
from weakref import WeakKeyDictionary

from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError
from draftwood.grammars.matcher import Compiler

_made: WeakKeyDictionary[PreTrainedTokenizerBase, dict[tuple[str, int], Compiler]] = (
    WeakKeyDictionary()
)
_lock = Lock()


def compiler_of(tokenizer: PreTrainedTokenizerBase, backend: str, size: int) -> Compiler:
    """The compiler of a library.

    Args:
        tokenizer: a fast one.
        backend: name of the library.
        size: the model's rows of logits.

    Raises:
        DraftwoodError: the library is not installed, or cannot read the tokenizer.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise DraftwoodError(
            f"a grammar needs a fast tokenizer, and {type(tokenizer).__name__} is none: load it "
            "with AutoTokenizer"
        )
    with _lock:
        known = _made.setdefault(tokenizer, {})
        if (backend, size) not in known:
            library = import_module(f"draftwood.grammars.backends.{backend}")
            known[backend, size] = library.compiler(tokenizer, size)
        return known[backend, size]
