"""Keeps the failure of one request from the rest of its batch.

A logits processor, a stopping criterion or an observer is foreign code, and a model may answer one
prompt with NaN. Knows nothing of what is done for a request.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from draftwood.protocols import Verdict, Verification


class Failures(dict[int, Exception]):
    """Exceptions that a request's own work raised, by the request's number."""

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Run work for one request; its exception is stored here and goes no further."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - foreign code
            self[number] = error


def each_verified(
    verify: Callable[[Sequence[Verification]], list[Verdict]], cases: Sequence[Verification]
) -> list[Verdict | Exception]:
    """Verdicts on all cases together; if that fails, on each by itself, or its exception.

    A verdict does not depend on the cases beside it, and no random number is used up.
    """
    try:
        return [*verify(cases)]
    except Exception as error:  # noqa: BLE001 - foreign code
        if len(cases) == 1:
            return [error]
        return [found for case in cases for found in each_verified(verify, [case])]
