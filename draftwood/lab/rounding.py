"""How far rounding may move logits."""

from typing import Final

ROUNDINGS: Final = 8
"""Bound on rounding, in units in the last place of the largest logit.

Two logits are compared in two computations. Each of the four values may be off by two units: half a
unit for its own rounding, the rest for the hidden states. With a largest logit of 10, the bound is
1e-5 in float32 and 0.6 in bfloat16.
"""
