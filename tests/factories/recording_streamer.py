"""A streamer that records what it is given."""

from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer


class Recording(BaseStreamer):
    """A streamer that records its values and fails at the value numbered ``fails``."""

    def __init__(self, fails: int = -1) -> None:
        self.values: list[Any] = []
        self.fails = fails

    def put(self, value: torch.Tensor) -> None:
        if len(self.values) == self.fails:
            raise RuntimeError("the reader has gone")
        self.values.append(value.tolist())

    def end(self) -> None:
        self.values.append("end")
