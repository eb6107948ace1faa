"""Several states of one matcher that can be taken back but not copied.

Such a matcher accepts tokens one by one and rolls back any number of them. Each state is the list
of tokens accepted since the first; the matcher is brought to it when it is asked for something.
"""

from typing import Any


class Shared:
    """The matcher, and the tokens that it has accepted since it was first shared."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self._accepted: tuple[int, ...] = ()

    def at(self, accepted: tuple[int, ...]) -> Any:
        """The matcher, brought to where it has accepted these tokens."""
        if self._accepted != accepted:
            pairs = enumerate(zip(self._accepted, accepted, strict=False))
            shorter = min(len(self._accepted), len(accepted))
            common = next((i for i, (a, b) in pairs if a != b), shorter)
            if common < len(self._accepted):
                self._matcher.rollback(len(self._accepted) - common)
            for token in accepted[common:]:
                self._matcher.accept_token(token)
            self._accepted = accepted
        return self._matcher

    def accept(self, accepted: tuple[int, ...], token: int) -> bool:
        """Whether it takes one token more."""
        taken = bool(self.at(accepted).accept_token(token))
        if taken:
            self._accepted = (*accepted, token)
        return taken


class Rewound:
    """One state of a shared matcher; answers all that the matcher answers."""

    def __init__(self, shared: Shared, accepted: tuple[int, ...] = ()) -> None:
        self._shared = shared
        self._accepted = accepted

    def accept_token(self, token: int) -> bool:
        """Go on by a token, if the matcher takes it."""
        taken = self._shared.accept(self._accepted, token)
        if taken:
            self._accepted = (*self._accepted, token)
        return taken

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._shared.at(self._accepted), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Rewound":
        return Rewound(self._shared, self._accepted)

    def __reduce__(self) -> Any:
        return (Rewound, (self._accepted,))
