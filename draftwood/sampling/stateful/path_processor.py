"""A stateful logits processor, called along any paths."""

from copy import copy
from typing import Any

import torch
from transformers import LogitsProcessor

from draftwood.errors import DraftwoodError
from draftwood.sampling.stateful.copying import Copier
from draftwood.sampling.stateful.inventory import inventory


class PathProcessor(LogitsProcessor):
    """Makes, along each path of a tree, the calls of a processor that ``generate`` would make.

    Only copies of the processor are called. The first call starts from the processor's state as
    given. Every other call starts from the state after the call for its tokens without the last,
    which must have been made. As long as calls change nothing, one copy serves all paths.

    State outside of the processor (in a global, a file, torch's generator) is not tracked.

    Args:
        processor: for one sequence, not called yet.

    Raises:
        DraftwoodError: the processor can be neither copied nor rolled back.
    """

    def __init__(self, processor: Any) -> None:
        self.name: str = getattr(processor, "name", type(processor).__name__)
        self._copier = Copier(self.name)
        self._start = self._copier.copy(processor)
        self._begin()

    def _begin(self) -> None:
        # One copy for every path as long as calls do not change it; None afterwards.
        self._stateless: Any = self._copier.copy(self._start)
        seen, given = inventory(self._stateless), inventory(self._start)
        if seen.opaque:
            self._stateless = None
        self._marks, self._start_marks = seen.marks, given.marks
        self._states: dict[bytes, Any] = {}
        self._answers: dict[bytes, torch.Tensor] = {}
        # The state before a path whose prefix has no state.
        self._base: Any = self._start

    def fresh(self) -> "PathProcessor":
        """A processor in the first state, for a new sequence."""
        found = copy(self)
        found._copier = Copier(self.name)  # the old one keeps the matchers of its sequence
        found._begin()
        return found

    def keep_path(self, input_ids: torch.Tensor) -> None:
        """Forget all paths but the one to the last token of ``input_ids``, int64 ``[1, L]``."""
        if self._states:
            before = _key(input_ids[:, :-1])
            kept = self._states.get(before)
            self._states, self._answers = {}, {}
            if kept is not None:
                self._states[before], self._base = kept, None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores ``[1, V]`` after ``input_ids`` int64 ``[1, L]``.

        Raises:
            DraftwoodError: the processor keeps state where its copies share it.
        """
        if self._stateless is not None:
            try:
                found = self._scored(self._stateless, input_ids, scores)
            except Exception:
                self._stateless = self._copier.copy(self._start)
                raise
            seen = inventory(self._stateless)
            if not seen.opaque and seen.marks == self._marks:
                return found
            if inventory(self._start).marks != self._start_marks:
                raise DraftwoodError(
                    f"{self.name} keeps state where its copies share it, in a function's closure "
                    "or an object with a __deepcopy__ of its own: keep it in attributes"
                )
            state, self._stateless = self._stateless, None
            return self._noted(_key(input_ids), state, found)
        key = _key(input_ids)
        known = self._answers.get(key)
        if known is not None:
            return known.clone()
        before = self._states.get(_key(input_ids[:, :-1]), self._base)
        if before is None:
            raise DraftwoodError(f"{self.name} was called for a path before its prefix")
        state = self._copier.copy(before)
        return self._noted(key, state, self._scored(state, input_ids, scores))

    def _scored(self, state: Any, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        # A copy: a processor may keep the ids, which are a view of the history.
        found: torch.Tensor = state(input_ids.clone(), scores)
        return found

    def _noted(self, key: bytes, state: Any, found: torch.Tensor) -> torch.Tensor:
        self._states[key] = state
        self._answers[key] = found.clone()
        return found


def _key(input_ids: torch.Tensor) -> bytes:
    return input_ids.cpu().numpy().tobytes()
