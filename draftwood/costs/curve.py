"""Cost curves: seconds of a forward by its size, and of a step by its parts.

The model of one forward over ``n`` tokens of ``b`` sequences with ``c`` cached tokens in all:

    T(n, c, b) = base(n) + per_context * c + per_pair * n * c / b + per_sequence * (b - 1)

* ``base``: weights, arithmetic and launches without a cache, linear between its sizes;
* ``per_context``: reading a cached token's keys and values;
* ``per_pair``: the attention of one token to one cached token of its sequence; there are
  ``n * c / b`` such pairs if trees and contexts are alike;
* ``per_sequence``: overhead of a further sequence.

No term falls with size, so a larger forward is never cheaper. The numbers are measured
(:mod:`draftwood.costs.measure`) or predicted (:mod:`draftwood.costs.roofline`).
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from draftwood.errors import DraftwoodError
from draftwood.files import decode, encode

VERSION = 2
"""Version of the JSON; other versions are refused."""


@dataclass(frozen=True)
class Curve:
    """Seconds of one forward as a function of its size.

    Attributes:
        sizes: scored tokens, ascending from 1, two or more.
        base: seconds at each size with an empty cache and one sequence, non-decreasing.
        per_context: seconds per cached token.
        per_pair: seconds per pair of a scored token and a cached token that it attends to.
        per_sequence: seconds per sequence after the first.

    Raises:
        DraftwoodError: sizes do not ascend from 1, seconds fall, or something is negative.
    """

    sizes: tuple[int, ...]
    base: tuple[float, ...]
    per_context: float = 0.0
    per_pair: float = 0.0
    per_sequence: float = 0.0

    def __post_init__(self) -> None:
        if (
            len(self.sizes) < 2
            or self.sizes[0] != 1
            or any(a >= b for a, b in pairwise(self.sizes))
        ):
            raise DraftwoodError(
                f"a cost curve has sizes {self.sizes}: give two or more, ascending from 1"
            )
        if len(self.base) != len(self.sizes):
            raise DraftwoodError(
                f"a cost curve has {len(self.sizes)} sizes and {len(self.base)} times: "
                "give one for each"
            )
        if not all(map(math.isfinite, self.base)) or self.base[0] <= 0.0:
            raise DraftwoodError(f"a cost curve has times {self.base}: give seconds above 0")
        if any(a > b for a, b in pairwise(self.base)):
            raise DraftwoodError(
                f"a cost curve falls from one size to the next, {self.base}: "
                "a larger forward is never cheaper"
            )
        for name in ("per_context", "per_pair", "per_sequence"):
            _check_rate(name, getattr(self, name))

    @cached_property
    def slope(self) -> float:
        """Seconds per token beyond the largest size.

        The slope between the largest size and the last one of at most half of it. The slope of the
        last interval alone may be zero because of noise.
        """
        start = bisect_right(self.sizes, self.sizes[-1] // 2) - 1
        rise = self.base[-1] - self.base[start]
        return rise / (self.sizes[-1] - self.sizes[start])

    @cached_property
    def _known(self) -> list[float]:
        """Seconds with an empty cache, for 0 tokens up to the largest size."""
        found: list[float] = np.interp(range(self.sizes[-1] + 1), self.sizes, self.base).tolist()
        return found

    def seconds(self, tokens: int, context: int = 0, batch: int = 1) -> float:
        """Seconds of one forward; 0 for no tokens.

        Args:
            tokens: scored tokens, roots included.
            context: cached tokens, summed over the batch.
            batch: sequences.
        """
        if tokens <= 0:
            return 0.0
        last = self.sizes[-1]
        beyond = self.slope * (tokens - last) if tokens > last else 0.0
        return (
            self._known[min(tokens, last)]
            + beyond
            + context * (self.per_context + self.per_pair * tokens / batch)
            + self.per_sequence * (batch - 1)
        )


@dataclass(frozen=True)
class StepCosts:
    """Seconds of one step: draft forwards, target forward, and host time.

    Attributes:
        target: curve of the target's forward.
        drafters: curve of one draft forward, by source name; tokens are the level's nodes, over
            the batch.
        fixed: seconds per step outside of forwards: the loop, verification, the drafters' tables.
        node: further seconds per drafted node, roots excluded.
        sequence: further seconds per sequence after the first.
        prompt: curve of the forward that caches tokens of a prompt; None: not measured.

    Raises:
        DraftwoodError: a time is negative.
    """

    target: Curve
    drafters: Mapping[str, Curve] = field(default_factory=dict)
    fixed: float = 0.0
    node: float = 0.0
    sequence: float = 0.0
    prompt: Curve | None = None

    def __post_init__(self) -> None:
        for name in ("fixed", "node", "sequence"):
            _check_rate(name, getattr(self, name))

    def step(
        self,
        tokens: int,
        context: int = 0,
        batch: int = 1,
        levels: Mapping[str, Sequence[int]] | None = None,
    ) -> float:
        """Seconds of one step of the whole batch.

        Args:
            tokens: scored by the target, roots included.
            context: cached tokens, summed over the batch.
            batch: sequences.
            levels: number of nodes of every drafted level, by source name.

        Raises:
            DraftwoodError: a drafter has no curve.
        """
        unknown = [source for source in levels or {} if source not in self.drafters]
        if unknown:
            known = ", ".join(self.drafters) or "none"
            raise DraftwoodError(
                f"costs of a level of drafter {unknown[0]!r} are not known, only of {known}: "
                "measure them first"
            )
        drafting = sum(
            self.drafters[source].seconds(width, context, batch)
            for source, widths in (levels or {}).items()
            for width in widths
        )
        host = self.fixed + self.node * (tokens - batch) + self.sequence * (batch - 1)
        return self.target.seconds(tokens, context, batch) + drafting + host

    def to_json(self) -> dict[str, object]:
        """The costs as JSON holds them, with a version."""
        return {"version": VERSION, **encode(self)}

    @classmethod
    def from_json(cls, found: object) -> "StepCosts":
        """Read the value that :meth:`to_json` returned.

        Raises:
            DraftwoodError: it is something else, or of another version.
        """
        if not isinstance(found, Mapping) or found.get("version") != VERSION:
            raise DraftwoodError(f"these are no step costs of version {VERSION}: measure them anew")
        try:
            return decode(cls, found)
        except DraftwoodError as error:
            raise DraftwoodError(f"{error}; measure the step costs anew") from error


def _check_rate(name: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds >= 0.0):
        raise DraftwoodError(f"{name} is {seconds} seconds: give 0 or more")
