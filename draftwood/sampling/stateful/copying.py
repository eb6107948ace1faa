"""Copies of logits processors.

``copy.deepcopy`` does it, with two exceptions: what is constant is shared (a model, a tokenizer, a
compiled grammar), and a matcher of a grammar library, which ``copy`` cannot see into, is forked by
its own method or, if it has none, rolled back.
"""

import copy
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.sampling.stateful.inventory import fork_of, inventory
from draftwood.sampling.stateful.rewinding import Rewound, Shared


class Copier:
    """Copies one processor and its copies.

    Args:
        name: what to call the processor in messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._shared: dict[int, tuple[object, Shared]] = {}

    def copy(self, thing: Any) -> Any:
        """A copy whose calls leave ``thing`` as it is, as long as ``thing`` is not called itself.

        Raises:
            DraftwoodError: a part of it can be neither copied nor rolled back.
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
        if isinstance(matcher, Rewound):
            return copy.deepcopy(matcher)
        if id(matcher) not in self._shared:
            self._shared[id(matcher)] = matcher, Shared(matcher)
        return Rewound(self._shared[id(matcher)][1])
