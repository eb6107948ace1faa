"""Sentences about the equality of a method's tokens with plain decoding's."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftwood.lab.bench.document import Divergence, Document, MethodResult


def differences(document: Document) -> list[str]:
    """A line per method whose tokens differ: the verdict and an example."""
    return [
        f"{name}: {verdict(method, document.dtype)}{_example(method.divergences)}"
        for name, method in document.methods.items()
        if method.divergences
    ]


def verdict(method: MethodResult, dtype: str) -> str:
    """Number of prompts with plain decoding's tokens, and the reasons for differences.

    Args:
        method: that was compared with plain decoding.
        dtype: number format of the model.
    """
    rounding, faults = method.rounding_prompts, method.fault_prompts
    parts = [f"{method.identical} of {method.compared} the same"]
    if rounding:
        parts.append(f"{rounding} {_differ(rounding)} by {dtype} rounding")
    if faults:
        parts.append(f"{faults} {_differ(faults)} by more than rounding: a fault")
    unknown = method.compared - method.identical - rounding - faults
    if unknown > 0:
        parts.append(f"{unknown} {_differ(unknown)}, not examined")
    return "; ".join(parts)


def _example(divergences: Sequence[Divergence]) -> str:
    known = [found for found in divergences if found.near_tie is not None]
    if not known:
        return ""
    first = next((found for found in known if found.fault), known[0])
    expected, found = (
        "the end" if token is None else str(token) for token in (first.expected, first.found)
    )
    place = f"{first.id}, turn {first.turn}, token {first.position}"
    where = f". First in {place}: {found} instead of {expected}"
    if first.bound is None:
        return where
    out_of_reach = first.gap is None or not isfinite(first.gap)
    gap = "out of reach" if out_of_reach else f"{first.gap:.2g} behind"
    return f"{where}, {gap} (rounding moves {first.bound:.2g})"


def _differ(count: int) -> str:
    return "differs" if count == 1 else "differ"
