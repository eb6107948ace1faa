"""A model's fingerprint: facts of its architecture and some of its weights, compared by value.

Files that were made for one model (a draft head, a table, a calibration) name it by this, so that
they are found and checked wherever the model was loaded from. Casts of the same weights match;
weights of a fine-tuned model or of another quantisation do not, but they may be near.
"""

import math
from dataclasses import dataclass

_DIGITS = (8, 11, 24)
"""Binary digits of a bfloat16, a float16 and a float32."""

_HALF = 0.625
"""Most that a cast moves a weight, in units in the last place: half of one, and what an earlier
cast to float16 adds to a cast to bfloat16."""

_SUBNORMAL = 1.25 * 2.0**-25
"""The same in absolute terms, for weights below float16's normal range."""

_NEAR = 0.25
"""Most difference of near weights, relative to their size, as root mean squares. Quantisation to
four bits makes 0.08 to 0.1, another model of the same architecture 1.4."""


@dataclass(frozen=True)
class Fingerprint:
    """A model's architecture and some of its weights.

    Dtype, device, the checkpoint's files and the layout of weights in memory do not count.

    Attributes:
        family: ``model_type`` of the text configuration.
        layers: number of decoder layers.
        width: of the hidden states.
        vocabulary: rows of the embedding.
        values: sampled weights, in a fixed order, each a float32 to nine decimal digits.
    """

    family: str
    layers: int
    width: int
    vocabulary: int
    values: tuple[float, ...]

    def matches(self, other: "Fingerprint") -> bool:
        """Whether both are of the same weights, each perhaps cast to another dtype.

        The coarser of the two dtypes is read off the values: a bfloat16 has 8 binary digits, a
        float16 11. At that precision no weight may differ.
        """
        if self._architecture() != other._architecture():
            return False
        digits = min(_digits(self.values), _digits(other.values))
        return all(_close(a, b, digits) for a, b in zip(self.values, other.values, strict=True))

    def is_near(self, other: "Fingerprint") -> bool:
        """Whether the other weights are close: those of one model, quantised or trained further."""
        if self._architecture() != other._architecture():
            return False
        size = math.hypot(*self.values)
        return size > 0.0 and math.dist(self.values, other.values) <= _NEAR * size

    def _architecture(self) -> tuple[str, int, int, int, int]:
        return self.family, self.layers, self.width, self.vocabulary, len(self.values)


def _digits(values: tuple[float, ...]) -> int:
    """Binary digits of the coarsest dtype that holds all values."""
    most = max((_needed(value) for value in values), default=0)
    return next((digits for digits in _DIGITS if most <= digits), _DIGITS[-1])


def _needed(value: float) -> int:
    """Binary digits of a float32."""
    whole = abs(round(math.frexp(value)[0] * 2 ** _DIGITS[-1]))
    return whole.bit_length() - (whole & -whole).bit_length() + 1 if whole else 0


def _close(a: float, b: float, digits: int) -> bool:
    """Whether two values are casts of one, the coarser one with so many digits."""
    unit = 2.0 ** (math.frexp(max(abs(a), abs(b)))[1] - digits)
    return abs(a - b) <= _HALF * unit + _SUBNORMAL
