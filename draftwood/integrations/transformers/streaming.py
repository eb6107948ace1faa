"""Feeds a transformers streamer with committed tokens."""

from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from draftwood.engine.request import Delta
from draftwood.errors import DraftwoodError


class SingleEndStreamer(BaseStreamer):
    """A streamer whose ``end`` may be called several times."""

    def __init__(self, streamer: BaseStreamer) -> None:
        self._streamer: Any = streamer
        self._ended = False

    def put(self, value: torch.Tensor) -> None:
        """Pass the value on."""
        self._streamer.put(value)

    def end(self) -> None:
        """End the streamer, unless it has been ended."""
        if not self._ended:
            self._ended = True
            self._streamer.end()


def put_tokens(streamer: Any, delta: Delta) -> None:
    """Put each token int64 ``[1]`` on the CPU, as ``generate`` does."""
    for token in delta.tokens:
        streamer.put(torch.tensor([token], device="cpu"))


def refuse_rows(count: int) -> None:
    """Check that a streamer can take a batch of ``count`` rows.

    Raises:
        DraftwoodError: there are several: ``generate`` puts their tokens together, but here rows
            advance at different speeds.
    """
    if count != 1:
        raise DraftwoodError(
            f"a streamer takes one sequence and there are {count}: give one prompt, leave "
            "num_return_sequences at 1, or use on_tokens, whose request_id tells the row"
        )
