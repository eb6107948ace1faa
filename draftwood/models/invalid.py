"""The errors of a ``config.json`` whose values are not valid, and what they say in one line.

transformers checks some of the values. Others fail where a layer is made of them.
"""

import re

from huggingface_hub.errors import StrictDataclassError

INVALID = (
    StrictDataclassError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

_CLASS = re.compile(r"^\w+Error: ")


def reason_of(error: Exception) -> str:
    """What an error says is wrong with a ``config.json``."""
    if isinstance(error, KeyError):
        text = str(error.args[0]) if error.args else ""
        return text if " " in text else f"{text!r} is missing, or is not known to transformers"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, StrictDataclassError):  # the first line names the check
        return _CLASS.sub("", lines[-1].strip())
    return lines[0]
