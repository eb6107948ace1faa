"""Several states of one grammar matcher that can roll back but cannot be copied.

Such a matcher accepts tokens one by one and rolls back any number of them. A state is the list of
tokens accepted since the first state. The matcher is moved to a state when the state is used.
"""

from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.tree import common_prefix


class SharedMatcher:
    """The matcher, and the tokens that it has accepted since it was first shared."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self.accepted: tuple[int, ...] = ()

    def at(self, accepted: tuple[int, ...]) -> Any:
        """The matcher in the state after these tokens."""
        if self.accepted != accepted:
            common = common_prefix(self.accepted, accepted)
            if common < len(self.accepted):
                self._matcher.rollback(len(self.accepted) - common)
            for token in accepted[common:]:
                self._matcher.accept_token(token)
            self.accepted = accepted
        return self._matcher


class MatcherState:
    """One state of a shared matcher, with the matcher's own interface."""

    def __init__(self, shared: SharedMatcher, accepted: tuple[int, ...] = ()) -> None:
        self._shared = shared
        self._accepted = accepted

    def accept_token(self, token: int) -> bool:
        """Accept a token; returns whether the matcher allows it."""
        taken = bool(self._shared.at(self._accepted).accept_token(token))
        if taken:
            self._accepted = self._shared.accepted = (*self._accepted, token)
        return taken

    def rollback(self, count: int = 1) -> None:
        """Take the last tokens back.

        Raises:
            DraftwoodError: the matcher accepted some of them before it was shared.
        """
        left = len(self._accepted) - count
        if left < 0:
            raise DraftwoodError(
                f"a logits processor takes back {count} tokens of its matcher, which has accepted "
                f"{len(self._accepted)} since it was copied: give it a fork() of its own"
            )
        self._accepted = self._accepted[:left]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._shared.at(self._accepted), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> "MatcherState":
        return MatcherState(self._shared, self._accepted)

    def __reduce__(self) -> Any:
        return (MatcherState, (self._accepted,))
