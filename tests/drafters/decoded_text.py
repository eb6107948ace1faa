"""A request of a target that really decodes, for drafters that read its hidden states."""

from typing import Any

import numpy as np

from draftwood.protocols import Drafter, Prefill
from draftwood.runner.runner import Runner
from tests.drafters.expand_and_check import Text


class DecodedText(Text):
    """A request of a drafter, whose prefill and steps are the target's."""

    def __init__(self, target: Runner, drafter: Drafter, slot: int, prompt: list[int]) -> None:
        self.target, self.needs = target, drafter.needs
        self.where = target.open(len(prompt) + 64)
        rows = target.prefill([self.where], [prompt], self.needs)[0]
        ids = np.array(prompt, dtype=np.int64)
        super().__init__(drafter, slot, Prefill(ids, int(rows.argmax[-1]), rows))

    def finish(self, *path: int, bonus: int = 3, rows: Any = None) -> None:
        rows = self.target.forward([self.where], [self.builder.build()], self.needs)[0]
        self.target.commit([self.where], [path])
        super().finish(*path, bonus=bonus, rows=rows)
