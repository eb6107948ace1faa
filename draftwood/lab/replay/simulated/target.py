"""A target that generates a synthetic language."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from draftwood.lab.replay.simulated.language import Language, State
from draftwood.lab.replay.weightless import WeightlessTarget, output
from draftwood.protocols import Needs, TargetInfo, TargetOutput
from draftwood.tree import TokenTree

_UNBOUNDED = 1 << 30


@dataclass
class SimulatedText:
    """A request: the states of its text, the empty text's first, and of the last tree's nodes."""

    states: list[State]
    tree: list[State] = field(default_factory=list)


class SimulatedTarget(WeightlessTarget[SimulatedText]):
    """Implements :class:`draftwood.protocols.Target` for greedy decoding."""

    def __init__(self, language: Language) -> None:
        facts = (language.vocabulary, _UNBOUNDED, 1, 1, torch.device("cpu"), torch.float32)
        super().__init__(TargetInfo(*facts))
        self._language = language

    def length(self, slot: int) -> int:
        """Number of tokens in the text."""
        return len(self._slots[slot].states) - 1

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[TargetOutput]:
        """Begin with the prompts."""
        found = []
        for slot, prompt in zip(slots, prompts, strict=True):
            states = [self._language.start()]
            for token in prompt:
                states.append(self._language.after(states[-1], token))
            self._slots[slot] = SimulatedText(states)
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
            for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
                above = states[parent] if parent >= 0 else self._slots[slot].states[-1]
                states.append(self._language.after(above, token))
            self._slots[slot].tree = states
            found.append(self._rows(states, needs, logits=len(states)))
        return found

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Append the root and the path."""
        for slot, path in zip(slots, paths, strict=True):
            text = self._slots[slot]
            text.states += [text.tree[node] for node in (0, *path)]

    def _rows(self, states: Sequence[State], needs: Needs, logits: int) -> TargetOutput:
        taken = [self._language.next_token(state) for state in states]
        k = min(needs.top_k, self.info.vocab_size)
        rows = [self._language.row(state, k) for state in states] if k else []
        shape = (len(states), k)
        tokens = np.array([tokens for tokens, _ in rows], dtype=np.int64).reshape(shape)
        probs = np.array([probs for _, probs in rows], dtype=np.float32).reshape(shape)
        return output(taken, tokens, probs, logits)
