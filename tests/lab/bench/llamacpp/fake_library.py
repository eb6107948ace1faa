"""A stand-in for llama-cpp-python: its interface, and a language of which every token is known."""

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

CYCLE = 5
"""After token t comes t + 1, and after the last of them 0."""


class Llama:
    """``generate`` as the library has it: drafts come after the first token and are checked."""

    opened: list["Llama"]

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.drafts: Callable[..., Any] | None = settings["draft_model"]
        self.calls: list[Any] = []
        type(self).opened.append(self)

    def reset(self) -> None:
        self.calls.append("reset")

    def set_seed(self, seed: int) -> None:
        self.calls.append(("seed", seed))

    def close(self) -> None:
        self.calls.append("close")

    def generate(self, tokens: Sequence[int], **sampling: float) -> Iterator[int]:
        self.calls.append(("generate", len(tokens), sampling))
        try:
            text = list(tokens)
            draft: list[int] = []
            while True:
                for drafted in [*draft, None]:
                    text.append((text[-1] + 1) % CYCLE)
                    yield text[-1]
                    if text[-1] != drafted:
                        break
                if self.drafts is not None:
                    draft = self.drafts(np.array(text, dtype=np.intc)).tolist()
        finally:
            self.calls.append("ended")


def library(*, gpu: bool = False, llama: type = Llama) -> ModuleType:
    """A module ``llama_cpp``."""
    module: Any = ModuleType("llama_cpp")
    Llama.opened = []
    module.Llama = llama
    module.GGML_TYPE_F32, module.GGML_TYPE_F16 = 0, 1
    module.llama_supports_gpu_offload = lambda: gpu
    made: ModuleType = module
    return made


class Script:
    """Drafts that are written down beforehand, and a record of what it is asked about."""

    def __init__(self, *drafts: list[int]) -> None:
        self._left = list(drafts)
        self.asked: list[list[int]] = []

    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        self.asked.append(input_ids.tolist())
        draft = self._left.pop(0) if self._left else []
        return np.array(draft, dtype=np.intc)
