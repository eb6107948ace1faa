"""Arguments that transformers' ``generate`` does not pass to a callable, read from its frame.

``generate(custom_generate=callable)`` withholds ``streamer``, ``assistant_model`` and
``synced_gpus`` and drops ``tokenizer``. Without them, the reader of a streamer would wait for ever,
and an assistant would be ignored silently. All of them are locals of the calling frames. Only the
nearest frame of each of transformers' own two functions is read. Without such a frame (a direct
call of the callable), no argument was withheld.
"""

import inspect
import sys
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from transformers import GenerationMixin

_GENERATE: CodeType = inspect.unwrap(GenerationMixin.generate).__code__
_EXTRACT: CodeType = GenerationMixin._extract_generation_mode_kwargs.__code__


@dataclass(frozen=True, eq=False)
class Withheld:
    """Arguments of ``generate`` that it does not pass on; None if not given."""

    streamer: Any = None
    assistant_model: Any = None
    synced_gpus: Any = None


def withheld_from(model: object) -> Withheld:
    """The arguments withheld by the surrounding ``generate`` call of ``model``."""
    frame = _nearest(_GENERATE)
    if frame is None or frame.f_locals.get("self") is not model:
        return Withheld()
    found = frame.f_locals
    return Withheld(*(found.get(n) for n in ("streamer", "assistant_model", "synced_gpus")))


class TokenizerSignature:
    """A ``__signature__`` that makes ``generate`` pass the tokenizer on.

    transformers removes ``tokenizer`` from the caller's keywords and then reads the callable's
    signature, to pass the keywords it names. Reading this signature puts the tokenizer back among
    the keywords. So it is passed like any other keyword, and stop strings find it too.
    """

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is None:
            raise AttributeError("__signature__")  # the class keeps its constructor's signature
        frame = _nearest(_EXTRACT)
        if frame is not None:
            taken = frame.f_locals["generation_mode_kwargs"]
            if "tokenizer" in taken:
                frame.f_locals["kwargs"]["tokenizer"] = taken["tokenizer"]
        return inspect.signature(instance.__call__)


def _nearest(code: CodeType) -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame
