"""The exceptions that Draftwood raises for what it cannot honour."""

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral


class DraftwoodError(ValueError):
    """Says in one sentence what was wrong and what to do about it.

    The command line prints it as a single line and exits with code 2.
    """


class RequestFailed(DraftwoodError):  # noqa: N818 - a kind of DraftwoodError
    """A request failed while it was decoded; what was raised is its cause.

    The command line prints ``reason`` as a single line and exits with code 1.

    Attributes:
        reason: what was raised, in words.
    """

    reason: str = ""


def need(module: str, extra: str) -> None:
    """Import ``module``, which Draftwood's extra ``extra`` installs.

    Raises:
        DraftwoodError: it cannot be imported.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise DraftwoodError(
            f"this needs {module} ({error}): pip install 'draftwood[{extra}]'"
        ) from error


def integer(name: str, value: object) -> int:
    """The value as an int.

    Raises:
        DraftwoodError: it is no integer, or a bool.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise DraftwoodError(f"{name} must be an integer, but is {value!r}")
    return int(value)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"did you mean 'x'?"``, or ``""`` if no known word is near."""
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""
