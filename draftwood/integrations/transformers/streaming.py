"""Feeds a transformers streamer with what the engine commits."""

from typing import Protocol

import torch

from draftwood.engine.request import Delta
from draftwood.errors import DraftwoodError


class Streamer(Protocol):
    """What transformers' streamers do."""

    def put(self, value: torch.Tensor) -> object:
        """Take the prompt int64 ``[1, L]``, then token after token int64 ``[1]``."""
        ...

    def end(self) -> object:
        """There is no more."""
        ...


class EndsOnce:
    """A streamer whose ``end`` may be called by everyone who might be the last."""

    def __init__(self, streamer: Streamer) -> None:
        self._streamer = streamer
        self._ended = False

    def put(self, value: torch.Tensor) -> None:
        """Hand the value on."""
        self._streamer.put(value)

    def end(self) -> None:
        """End the streamer, unless it has been ended."""
        if not self._ended:
            self._ended = True
            self._streamer.end()


def put_tokens(streamer: Streamer, delta: Delta) -> None:
    """Put each token int64 ``[1]`` on the CPU, as ``generate`` does."""
    for token in delta.tokens:
        streamer.put(torch.tensor([token]))


def refuse_rows(count: int) -> None:
    """Check that a streamer can take a batch of ``count`` rows.

    Raises:
        DraftwoodError: there are several, which ``generate`` would put side by side, token by
            token; here rows go on at their own pace.
    """
    if count != 1:
        raise DraftwoodError(
            f"a streamer takes one sequence and there are {count}: give one prompt, leave "
            "num_return_sequences at 1, or use on_tokens, which says whose tokens it is told"
        )
