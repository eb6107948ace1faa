"""Whether a method kept plain decoding's tokens, in words.

Knows nothing of how differences were found and explained.
"""

from collections.abc import Mapping
from typing import Any


def verdict(same: int, compared: int, rounding: int, faults: int, dtype: str) -> str:
    """How many prompts have plain decoding's tokens, and why the others have not.

    Args:
        same: prompts with the same tokens.
        compared: all prompts that were compared.
        rounding: prompts in which rounding explains every difference.
        faults: prompts in which it does not explain one.
        dtype: that the model computes in.
    """
    parts = [f"{same} of {compared} the same"]
    if rounding:
        parts.append(f"{rounding} {_differ(rounding)} by {dtype} rounding")
    if faults:
        parts.append(f"{faults} {_differ(faults)} by more than rounding: a fault")
    unknown = compared - same - rounding - faults
    if unknown > 0:
        parts.append(f"{unknown} {_differ(unknown)}, not looked into")
    return "; ".join(parts)


def differences(document: Mapping[str, Any]) -> list[str]:
    """A line for each method whose tokens differ: the verdict, and its worst first difference."""
    dtype = str(document["provenance"].get("model", {}).get("dtype", ""))
    return [
        f"{name}: {_of(entry, dtype)}{_example(entry['divergences'])}"
        for name, entry in document["methods"].items()
        if entry["divergences"]
    ]


def _of(entry: Mapping[str, Any], dtype: str) -> str:
    counts = ("identical", "compared", "rounding_prompts", "fault_prompts")
    same, compared, rounding, faults = (int(entry[key]) for key in counts)
    return verdict(same, compared, rounding, faults, dtype)


def _example(divergences: list[Mapping[str, Any]]) -> str:
    known = [found for found in divergences if found["near_tie"] is not None]
    faults = [found for found in known if not found["near_tie"]]
    if not known:
        return ""
    first = (faults or known)[0]
    expected, found = (
        "the end" if first[key] is None else str(first[key]) for key in ("expected", "found")
    )
    place = f"{first['id']}, turn {first['turn']}, token {first['position']}"
    where = f". First in {place}: {found} instead of {expected}"
    if first["bound"] is None:
        return where
    gap = "out of reach" if first["gap"] is None else f"{first['gap']:.2g} behind"
    return f"{where}, {gap} (rounding moves {first['bound']:.2g})"


def _differ(count: int) -> str:
    return "differs" if count == 1 else "differ"
