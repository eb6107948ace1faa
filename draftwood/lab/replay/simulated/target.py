"""A target that generates a synthetic language."""

from collections.abc import Sequence

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.simulated.language import Language, State
from draftwood.protocols import Needs, TargetInfo, TargetOutput
from draftwood.tree import TokenTree

_NO_LOGITS = torch.zeros((1, 1))
_UNBOUNDED = 1 << 30


class SimulatedTarget:
    """Implements :class:`draftwood.protocols.Target` for greedy decoding."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._info = TargetInfo(
            language.vocabulary, _UNBOUNDED, 1, 1, torch.device("cpu"), torch.float32
        )
        self._texts: dict[int, list[State]] = {}
        self._trees: dict[int, list[State]] = {}

    @property
    def info(self) -> TargetInfo:
        """Size of the vocabulary; the context is unbounded, and there are no layers."""
        return self._info

    def open(self, capacity: int) -> int:  # noqa: ARG002
        """Reserve a slot."""
        slot = next(i for i in range(len(self._texts) + 1) if i not in self._texts)
        self._texts[slot] = [self._language.start()]
        return slot

    def release(self, slot: int) -> None:
        """Free a slot."""
        del self._texts[slot]
        self._trees.pop(slot, None)

    def length(self, slot: int) -> int:
        """Number of tokens in the text."""
        return len(self._texts[slot]) - 1

    def embedding(self) -> torch.nn.Module:
        """Not available: there are no weights.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("a simulated target has no weights")

    def lm_head(self) -> torch.nn.Module | None:
        """None: there are no weights."""
        return None

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[TargetOutput]:
        """Append the prompts."""
        found = []
        for slot, prompt in zip(slots, prompts, strict=True):
            states = self._texts[slot]
            for token in prompt:
                states.append(self._language.after(states[-1], token))
            first = 1 if needs.prompt_rows else len(prompt)
            found.append(self._rows(states[first:], needs, logits=1))
        return found

    def forward(
        self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs
    ) -> list[TargetOutput]:
        """The language's rows after every node."""
        found = []
        for slot, tree in zip(slots, trees, strict=True):
            states: list[State] = []
            pairs = zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True)
            for token, parent in pairs:
                above = states[parent] if parent >= 0 else self._texts[slot][-1]
                states.append(self._language.after(above, token))
            self._trees[slot] = states
            found.append(self._rows(states, needs, logits=len(states)))
        return found

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Append the root and the path."""
        for slot, path in zip(slots, paths, strict=True):
            tree = self._trees.pop(slot)
            self._texts[slot] += [tree[node] for node in (0, *path)]

    def _rows(self, states: Sequence[State], needs: Needs, logits: int) -> TargetOutput:
        taken = np.array([self._language.next_token(state) for state in states], dtype=np.int64)
        k = min(needs.top_k, self._info.vocab_size)
        rows = [self._language.row(state, k) for state in states] if k else []
        shape = (len(states), k)
        return TargetOutput(
            _NO_LOGITS.expand(logits, 1),
            taken,
            np.array([tokens for tokens, _ in rows], dtype=np.int64).reshape(shape),
            np.array([probs for _, probs in rows], dtype=np.float32).reshape(shape),
        )
