"""A trial of a contender, so that what its library refuses is known before the run."""

from typing import TypeVar

from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError, first_line
from draftwood.lab.bench.measure import Contender

C = TypeVar("C", bound=Contender)

_TRIAL = Request([1, 1, 1], max_new_tokens=4)
_REFUSALS = (AttributeError, OSError, RuntimeError, TypeError, ValueError)


def tried(contender: C, refusal: str) -> C:
    """Decode a few tokens, then return ``contender``.

    Raises:
        DraftwoodError: its library cannot decode the model; the message is ``refusal`` and the
            library's reason.
    """
    try:
        contender.begin(1)([_TRIAL])
    except _REFUSALS as error:
        raise DraftwoodError(f"{refusal}: {first_line(error)}") from error
    return contender
