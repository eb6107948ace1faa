"""Draftwood's exceptions, and checks that raise them."""

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import Any, TypeGuard

_LONGEST_WORD = 64
"""Most characters of a word to which a similar one is looked for."""


class DraftwoodError(ValueError):
    """An error of the user's input; its message says what was wrong and what to do.

    The command line prints it as a single line and exits with code 2.
    """


class RequestFailed(DraftwoodError):  # noqa: N818 - a kind of DraftwoodError
    """A request failed while it was decoded; the error is its ``__cause__``.

    The command line prints ``reason`` as a single line and exits with code 1.

    Attributes:
        reason: the cause in words.
    """

    reason: str = ""


class GrammarError(DraftwoodError):
    """The grammar of a request allows no token, or its library has given up."""


def need(module: str, extra: str) -> Any:
    """Import ``module``, which Draftwood's extra ``extra`` installs.

    Raises:
        DraftwoodError: it cannot be imported; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:  # OSError: a shared library is missing
        raise DraftwoodError(
            f"this needs {module} ({error}): pip install 'draftwood[{extra}]'"
        ) from error


def integer(name: str, value: object) -> int:
    """Convert ``value`` to int.

    Raises:
        DraftwoodError: it is no integer, or a bool.
    """
    if not _is_integer(value):
        raise DraftwoodError(f"{name} must be an integer, but is {value!r}")
    return int(value)


def integers(name: str, given: Any) -> tuple[int, ...]:
    """Convert a sequence, an array or a tensor to integers.

    Raises:
        DraftwoodError: it is no sequence, or holds something else.
    """
    given = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise DraftwoodError(f"{name} is {given!r}: give a sequence of integers")
    found = tuple(given)
    if set(map(type, found)) <= {int}:  # a prompt may have a hundred thousand of them
        return found
    for number in found:
        if not _is_integer(number):
            raise DraftwoodError(f"{name} holds {number!r}: give integers")
    return tuple(map(int, found))


def _is_integer(value: object) -> TypeGuard[Integral]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"did you mean 'x'?"``, or ``""`` if no known word is similar."""
    # Its time grows with the square of the length.
    near = get_close_matches(word, list(known), n=1) if len(word) <= _LONGEST_WORD else []
    return f"did you mean {near[0]!r}?" if near else ""


def first_line(error: Exception) -> str:
    """The first line of an error's message; the name of its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
