"""What checks share: their cost, results of comparisons, and requests that are not answered."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.client import Failed, Refused, Stopped
from draftwood.lab.endpoint.comparison import Comparison
from draftwood.lab.endpoint.divergence import Divergence
from draftwood.lab.endpoint.result import Asked, Outcome, Result
from draftwood.lab.endpoint.server import Server


@dataclass(frozen=True)
class Cost:
    """Most requests, and most tokens that they generate."""

    requests: int = 0
    tokens: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.requests + other.requests, self.tokens + other.tokens)


@dataclass(frozen=True)
class Size:
    """What the cost of a check depends on.

    Attributes:
        prompts: number of prompts.
        samples: continuations to sample of each side.
        sides: servers that are asked: 1 beside a local model, else 2.
    """

    prompts: int
    samples: int
    sides: int


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: in reports.
        cost: of a run, both sides together.
        run: makes its results.
    """

    name: str
    cost: Callable[[Size], Cost]
    run: Callable[[Comparison], Iterable[Result]]


OUTCOMES: Mapping[str, Outcome] = {
    "rounding": "passed",
    "fault": "failed",
    "unknown": "undecided",
}
"""What follows from the cause of a divergence."""


def compared(
    check: str,
    subject: str,
    found: Divergence | None,
    equal: str,
    requests: tuple[Asked, ...] = (),
) -> Result:
    """The result of a comparison; ``equal``: what is said if there is no difference."""
    if found is None:
        return Result(check, subject, "passed", equal)
    return Result(check, subject, OUTCOMES[found.cause], str(found), found, requests=requests)


def attempted(check: str, subject: str, make: Callable[[], Result]) -> Result:
    """A result, also where a server refuses the request or fails."""
    try:
        return make()
    except Stopped as reason:
        return unfinished(check, subject, reason)
    except DraftwoodError as error:
        return Result(check, subject, "not checked", str(error))
    except Refused as refusal:
        return Result(check, subject, "not checked", f"not supported: {refusal}")
    except Failed as failure:
        requests = () if failure.request is None else (failure.request,)
        text = f"a request failed: {failure}"
        return Result(check, subject, "failed", text, requests=requests)


def unfinished(check: str, subject: str, reason: Exception) -> Result:
    """The result of a check that could not be made to its end."""
    return Result(check, subject, "undecided", f"not finished: {reason}", unfinished=True)


def blamed(run: Comparison, check: Callable[[Server], Iterable[Result]]) -> Iterator[Result]:
    """Results of a check of the endpoint alone; where it fails, the reference is asked the same.

    A fault that both share is not one of speculation.
    """
    found = list(check(run.endpoint))
    if isinstance(run.reference, Server) and any(each.outcome == "failed" for each in found):
        same = {each.subject for each in check(run.reference) if each.outcome == "failed"}
        found = [
            replace(each, text=f"{each.text}; so does the reference", shared=True)
            if each.outcome == "failed" and each.subject in same
            else each
            for each in found
        ]
    yield from found
