"""Copies of logits processors.

``copy.deepcopy`` copies them, with two exceptions. Constant parts are shared (a model, a tokenizer,
a compiled grammar). A matcher of a grammar library, which ``copy`` cannot copy, is forked by its
own method or, if it has none, rolled back.
"""

import copy
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.sampling.stateful.inventory import fork_of, inventory
from draftwood.sampling.stateful.matcher import MatcherState, SharedMatcher


class Copier:
    """Copies one processor and its copies.

    Args:
        name: the processor's name in messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._shared: dict[int, tuple[object, SharedMatcher]] = {}

    def copy(self, thing: Any) -> Any:
        """A copy whose calls do not change ``thing``, as long as ``thing`` itself is not called.

        Raises:
            DraftwoodError: a part can be neither copied nor rolled back.
        """
        found = inventory(thing)
        try:
            memo: dict[int, Any] = {id(part): part for part in found.constant}
            memo |= {id(part): fork_of(part)() for part in found.forkable}
            memo |= {id(part): self._rewound(part) for part in found.rewindable}
            return copy.deepcopy(thing, memo)
        except Exception as error:  # foreign code: whatever it raises, there is no copy
            raise DraftwoodError(
                f"{self._name} cannot be applied to drafts: it may keep state, and "
                f"it cannot be copied ({error}). Set keeps_state = False on it if its scores "
                "follow from input_ids and scores alone, give it a __deepcopy__, or decode without "
                "drafting"
            ) from error

    def _rewound(self, matcher: object) -> Any:
        if isinstance(matcher, MatcherState):
            return copy.deepcopy(matcher)
        if id(matcher) not in self._shared:
            self._shared[id(matcher)] = matcher, SharedMatcher(matcher)
        return MatcherState(self._shared[id(matcher)][1])
