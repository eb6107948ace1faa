"""Checks of the types of arguments."""

from numbers import Integral

from draftwood.errors import DraftwoodError


def integer(name: str, value: object) -> int:
    """The value as an int.

    Raises:
        DraftwoodError: it is no integer, or a bool.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise DraftwoodError(f"{name} must be an integer, but is {value!r}")
    return int(value)
