"""What transformers' ``generate`` does not hand to a callable, read from its calling frame.

``generate(custom_generate=callable)`` keeps ``streamer``, ``assistant_model`` and ``synced_gpus``
to itself and drops ``tokenizer``. A streamer that is never fed leaves its reader waiting for ever,
and an assistant that is never asked is a setting ignored in silence. All of them are locals of the
frames that called us. Only frames of transformers' own two functions are read, and only the nearest
one; where there is none (a callable called by hand), nothing was kept back.
"""

import inspect
import sys
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from transformers import GenerationMixin


@dataclass(frozen=True, eq=False)
class KeptBack:
    """Arguments of ``generate`` that it did not hand on; None where they were not given."""

    streamer: Any = None
    assistant_model: Any = None
    synced_gpus: Any = None


def kept_back(model: object) -> KeptBack:
    """What the ``generate`` call of ``model`` that this is part of keeps to itself."""
    frame = _nearest(_code("generate"))
    if frame is None or frame.f_locals.get("self") is not model:
        return KeptBack()
    found = frame.f_locals
    return KeptBack(*(found.get(n) for n in ("streamer", "assistant_model", "synced_gpus")))


class HandsTokenizerBack:
    """A ``__signature__`` that has ``generate`` hand the tokenizer on.

    transformers takes ``tokenizer`` out of the caller's keywords and only then asks for the
    callable's signature, to hand over the keywords it names. Answering that question, this puts the
    tokenizer back among them, so that it is handed over like any other keyword and stop strings
    find it too.
    """

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is None:
            raise AttributeError("__signature__")  # a class has the one of its constructor
        frame = _nearest(_code("_extract_generation_mode_kwargs"))
        if frame is not None:
            taken = frame.f_locals.get("generation_mode_kwargs") or {}
            left = frame.f_locals.get("kwargs")
            if taken.get("tokenizer") is not None and isinstance(left, dict):
                left["tokenizer"] = taken["tokenizer"]
        return inspect.signature(instance.__call__)


def _code(name: str) -> CodeType | None:
    function = getattr(GenerationMixin, name, None)
    return getattr(inspect.unwrap(function), "__code__", None) if function else None


def _nearest(code: CodeType | None) -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame
