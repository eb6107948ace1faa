"""Seconds of a forward by its size, and of a step by its parts: plain numbers and their JSON.

The model of one forward over ``n`` tokens of ``b`` sequences with ``c`` cached tokens in all:

    T(n, c, b) = base(n) + per_context * c + per_pair * n * c / b + per_sequence * (b - 1)

``base`` is what weights, arithmetic and launches cost without a cache, linear between its sizes;
``per_context`` is reading a cached token's keys and values; ``per_pair`` is the attention of one
token to one cached token of its own sequence, of which there are ``n * c / b`` if trees and
contexts are alike; ``per_sequence`` is what a sequence costs beside its tokens. No term falls with
size, so that a larger forward is never cheaper. It refuses to know where its numbers come from:
they may be measured (:mod:`draftwood.costs.measure`) or expected (:mod:`draftwood.costs.roofline`).
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError

VERSION = 1
"""Of the JSON; other versions are refused."""


@dataclass(frozen=True)
class Curve:
    """Seconds of one forward.

    Attributes:
        sizes: tokens scored, ascending from 1, two or more.
        base: seconds at each size with an empty cache and one sequence, never falling.
        per_context: seconds for each cached token.
        per_pair: seconds for each pair of a scored token and a cached one that it attends to.
        per_sequence: seconds for each sequence beyond the first.

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
        """Seconds a token beyond the largest size.

        Taken from the largest size back to the last one of at most half of it, because the step
        before the largest alone may be flat by chance.
        """
        start = bisect_right(self.sizes, self.sizes[-1] // 2) - 1
        rise = self.base[-1] - self.base[start]
        return rise / (self.sizes[-1] - self.sizes[start])

    @cached_property
    def _known(self) -> NDArray[np.float64]:
        """Seconds without a cache by tokens, 0 up to the largest size; none for no tokens."""
        tokens = np.arange(self.sizes[-1] + 1)
        found = np.interp(tokens, self.sizes, self.base)
        found[0] = 0.0
        return found

    @cached_property
    def _lookup(self) -> list[float]:
        found: list[float] = self._known.tolist()
        return found

    def seconds(self, tokens: int, context: int = 0, batch: int = 1) -> float:
        """Of one forward; no tokens are no forward, 0.

        Args:
            tokens: scored in it, roots included; where a target pads the trees of a batch to the
                largest, padding is scored as well.
            context: cached tokens, summed over the batch.
            batch: sequences.
        """
        if tokens <= 0:
            return 0.0
        last = self.sizes[-1]
        beyond = self.slope * (tokens - last) if tokens > last else 0.0
        return (
            self._lookup[min(tokens, last)]
            + beyond
            + context * (self.per_context + self.per_pair * tokens / batch)
            + self.per_sequence * (batch - 1)
        )

    def table(self, limit: int, context: int = 0, batch: int = 1) -> NDArray[np.float64]:
        """:meth:`seconds` for 0 to ``limit`` tokens at once: float64 ``[limit + 1]``."""
        known, last = self._known, self.sizes[-1]
        found = known[: limit + 1]
        if limit > last:
            beyond = known[-1] + self.slope * np.arange(1, limit - last + 1)
            found = np.concatenate((found, beyond))
        fixed = context * self.per_context + self.per_sequence * (batch - 1)
        found = found + np.arange(limit + 1) * (context * self.per_pair / batch)
        found += fixed
        found[0] = 0.0
        return found

    def to_json(self) -> dict[str, object]:
        """As JSON can hold it."""
        return {
            "sizes": list(self.sizes),
            "base": list(self.base),
            **{name: getattr(self, name) for name in ("per_context", "per_pair", "per_sequence")},
        }

    @classmethod
    def from_json(cls, found: object) -> "Curve":
        """What :meth:`to_json` returned.

        Raises:
            DraftwoodError: it is something else.
        """
        known = {f.name for f in fields(cls)}
        if not isinstance(found, Mapping) or set(found) != known:
            raise DraftwoodError(f"this is no cost curve: it needs {', '.join(sorted(known))}")
        return cls(
            sizes=tuple(int(_number(size)) for size in _numbers(found["sizes"])),
            base=tuple(_numbers(found["base"])),
            per_context=_number(found["per_context"]),
            per_pair=_number(found["per_pair"]),
            per_sequence=_number(found["per_sequence"]),
        )


@dataclass(frozen=True)
class StepCosts:
    """Seconds of one step: draft, score, and everything else.

    Attributes:
        target: of the target's forward.
        drafters: of one level of each drafter that has a model, by source name; tokens are the
            level's nodes, over the batch.
        fixed: seconds a step outside of forwards: the loop, verification, the drafters' tables.
        node: further seconds for each drafted node, the roots excluded.
        sequence: further seconds for each sequence beyond the first.

    Raises:
        DraftwoodError: a time is negative.
    """

    target: Curve
    drafters: Mapping[str, Curve] = field(default_factory=dict)
    fixed: float = 0.0
    node: float = 0.0
    sequence: float = 0.0

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
        """Of one step of the whole batch.

        Args:
            tokens: scored by the target, roots included.
            context: cached tokens, summed over the batch.
            batch: sequences.
            levels: nodes of every level that was drafted, by source name.

        Raises:
            DraftwoodError: the costs of a drafter are not known.
        """
        drafting = 0.0
        for source, widths in (levels or {}).items():
            if source not in self.drafters:
                known = ", ".join(self.drafters) or "none"
                raise DraftwoodError(
                    f"costs of a level of drafter {source!r} are not known, only of {known}: "
                    "measure them first"
                )
            level = self.drafters[source]
            drafting += sum(level.seconds(width, context, batch) for width in widths)
        host = self.fixed + self.node * (tokens - batch) + self.sequence * (batch - 1)
        return self.target.seconds(tokens, context, batch) + drafting + host

    def to_json(self) -> dict[str, object]:
        """As JSON can hold it, with a version."""
        return {
            "version": VERSION,
            "target": self.target.to_json(),
            "drafters": {source: level.to_json() for source, level in self.drafters.items()},
            **{name: getattr(self, name) for name in ("fixed", "node", "sequence")},
        }

    @classmethod
    def from_json(cls, found: object) -> "StepCosts":
        """What :meth:`to_json` returned.

        Raises:
            DraftwoodError: it is something else, or of another version.
        """
        if not isinstance(found, Mapping) or found.get("version") != VERSION:
            raise DraftwoodError(f"these are no step costs of version {VERSION}: measure them anew")
        missing = {f.name for f in fields(cls)} - set(found)
        if missing or not isinstance(found["drafters"], Mapping):
            raise DraftwoodError("these step costs are incomplete: measure them anew")
        return cls(
            target=Curve.from_json(found["target"]),
            drafters={str(k): Curve.from_json(v) for k, v in found["drafters"].items()},
            fixed=_number(found["fixed"]),
            node=_number(found["node"]),
            sequence=_number(found["sequence"]),
        )


def _check_rate(name: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds >= 0.0):
        raise DraftwoodError(f"{name} is {seconds} seconds: give 0 or more")


def _numbers(found: Any) -> list[float]:
    if not isinstance(found, list):
        raise DraftwoodError("a cost curve's sizes and base are lists of numbers")
    return [_number(item) for item in found]


def _number(found: Any) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise DraftwoodError(f"{found!r} stands where cost curves have a number")
    return float(found)
