"""A logits processor that keeps state, asked along any paths."""

from copy import copy
from typing import Any

import torch
from transformers import LogitsProcessor

from draftwood.errors import DraftwoodError
from draftwood.sampling.stateful.copying import Copier
from draftwood.sampling.stateful.inventory import inventory


class Retraced(LogitsProcessor):
    """Shows a processor, along each path of a tree, the calls that ``generate`` would have made.

    Only copies of the processor are called, so that the one given stays as it was. The first call
    starts from the state it was given in, every other from the state after the call for the tokens
    without the last; that one must have been made. As long as calls change nothing, one copy serves
    for all of them.

    State outside of the processor (in a global, a file, torch's generator) cannot be followed.

    Args:
        processor: of one sequence, not used yet.

    Raises:
        DraftwoodError: the processor can be neither copied nor rolled back.
    """

    def __init__(self, processor: Any) -> None:
        self.name: str = getattr(processor, "name", type(processor).__name__)
        self._copier = Copier(self.name)
        self._start = self._copier.copy(processor)
        self._begin()

    def _begin(self) -> None:
        # Called for every path, as long as that changes nothing; then there is none.
        self._still: Any = self._copier.copy(self._start)
        seen, given = inventory(self._still), inventory(self._start)
        if seen.opaque:
            self._still = None
        self._marks, self._start_marks = seen.marks, given.marks
        self._states: dict[bytes, Any] = {}
        self._answers: dict[bytes, torch.Tensor] = {}
        # The state before the call for a path that is not known.
        self._base: Any = self._start

    def fresh(self) -> "Retraced":
        """One that has not been asked yet."""
        found = copy(self)
        found._begin()
        return found

    def settle(self, input_ids: torch.Tensor) -> None:
        """Forget all paths but the one to the last of ``input_ids``, int64 ``[1, L]``."""
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
        if self._still is not None:
            try:
                found = self._asked(self._still, input_ids, scores)
            except Exception:
                self._still = self._copier.copy(self._start)
                raise
            seen = inventory(self._still)
            if not seen.opaque and seen.marks == self._marks:
                return found
            if inventory(self._start).marks != self._start_marks:
                raise DraftwoodError(
                    f"{self.name} keeps state where its copies share it, in a function's closure "
                    "or an object with a __deepcopy__ of its own: keep it in attributes"
                )
            state, self._still = self._still, None
            return self._noted(_key(input_ids), state, found)
        key = _key(input_ids)
        known = self._answers.get(key)
        if known is not None:
            return known.clone()
        before = self._states.get(_key(input_ids[:, :-1]), self._base)
        if before is None:
            raise DraftwoodError(f"{self.name} is asked about a path before its beginning")
        state = self._copier.copy(before)
        return self._noted(key, state, self._asked(state, input_ids, scores))

    def _asked(self, state: Any, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        # A processor may keep the ids that it is shown, which are a view of ours.
        found: torch.Tensor = state(input_ids.clone(), scores)
        return found

    def _noted(self, key: bytes, state: Any, found: torch.Tensor) -> torch.Tensor:
        self._states[key] = state
        self._answers[key] = found.clone()
        return found


def _key(input_ids: torch.Tensor) -> bytes:
    return input_ids.cpu().numpy().tobytes()
