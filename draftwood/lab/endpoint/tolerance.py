"""How far apart rounding may move two log probabilities, by the dtype that a server computes in.

The bound is :data:`draftwood.lab.rounding.ROUNDINGS` for a largest logit of 10: an API reports
probabilities, not logits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from draftwood.errors import DraftwoodError
from draftwood.lab.rounding import ROUNDINGS

LARGEST_LOGIT = 10.0
LEAST = 1e-4
"""Least tolerance, for the digits that servers report."""

ASSUMED = "bfloat16"
"""Dtype of most servers."""

_EPSILONS: Mapping[str, float] = {
    "float32": 2.0**-23,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
}


@dataclass(frozen=True)
class Tolerance:
    """The largest gap between two log probabilities that counts as rounding.

    Attributes:
        value: in nats.
        origin: where it comes from, in words.
    """

    value: float
    origin: str

    def __str__(self) -> str:
        return f"{self.value:.2g} ({self.origin})"


def tolerance(given: float | None, dtype: str) -> Tolerance:
    """The tolerance that was given, or that of a dtype; ``"auto"``: that of :data:`ASSUMED`.

    Raises:
        DraftwoodError: the number is below 0, or the dtype has no rounding of its own.
    """
    if given is not None:
        if not 0 <= given < math.inf:
            raise DraftwoodError(f"--tolerance is {given}: give a number from 0 up")
        return Tolerance(given, "as given")
    name = ASSUMED if dtype == "auto" else dtype
    if name not in _EPSILONS:
        raise DraftwoodError(
            f"--dtype {name} says nothing of a server's rounding: give --tolerance, or "
            f"{', '.join(_EPSILONS)}"
        )
    value = max(ROUNDINGS * _EPSILONS[name] * LARGEST_LOGIT, LEAST)
    return Tolerance(value, f"{name} is assumed: --dtype" if dtype == "auto" else name)
