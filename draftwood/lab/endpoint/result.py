"""Results of checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from draftwood.lab.endpoint.divergence import Divergence

Outcome: TypeAlias = Literal["passed", "failed", "undecided", "not checked", "note"]


@dataclass(frozen=True)
class Asked:
    """A request that shows a result, to be repeated by hand.

    Attributes:
        url: where it was sent.
        body: as JSON.
        has_key: whether a key was sent.
    """

    url: str
    body: Mapping[str, Any]
    has_key: bool = False


@dataclass(frozen=True)
class Result:
    """The result of a check.

    Attributes:
        check: its name.
        subject: what was checked: a prompt, a field.
        outcome: ``"undecided"``: there is a difference that cannot be explained, or the check was
            not finished; ``"not checked"``: the server does not support it; ``"note"``: neither
            right nor wrong.
        text: what was found, in words.
        divergence: the first difference, if there is one.
        unfinished: whether the server could not be asked all that the check needs.
        shared: whether the reference alone, asked the same, fails as well.
        figures: numbers of the check.
        requests: that show it: the endpoint's, then the reference's if that is a server.
    """

    check: str
    subject: str
    outcome: Outcome
    text: str
    divergence: Divergence | None = None
    unfinished: bool = False
    shared: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)
    requests: tuple[Asked, ...] = ()

    @property
    def title(self) -> str:
        """The check and its subject."""
        return f"{self.check}, {self.subject}" if self.subject else self.check

    def __str__(self) -> str:
        return f"{self.title}: {self.text}"
