"""Grammars that are made to take long, or to end the process; each is built when it is sent."""

from collections.abc import Callable, Mapping
from typing import Any


def _nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}, "required": ["a"]}
    return found


def _doubling(levels: int) -> dict[str, Any]:
    """Each definition is one of two that are the one before."""
    found: dict[str, Any] = {"d0": {"type": "integer"}}
    for i in range(1, levels):
        found[f"d{i}"] = {"anyOf": [{"$ref": f"#/$defs/d{i - 1}"}] * 2}
    return {"$ref": f"#/$defs/d{levels - 1}", "$defs": found}


def _references(links: int) -> dict[str, Any]:
    found: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(links)}
    return {"$ref": "#/$defs/d0", "$defs": found | {f"d{links}": {"type": "integer"}}}


def _rules(count: int) -> str:
    listed = [f'r{i}: r{i + 1} | "x"' for i in range(count)]
    return "\n".join(["start: r0", *listed, f'r{count}: "z"'])


BOMBS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "nested objects": lambda: {"json": _nested(400)},
    "doubling references": lambda: {"json": _doubling(100)},
    "3,000 references": lambda: {"json": _references(3000)},
    "itself": lambda: {"json": {"$ref": "#"}},
    "30,000 branches": lambda: {"json": {"anyOf": [{"$ref": "#/$defs/a"}] * 30_000,
                                         "$defs": {"a": {"type": "integer"}}}},
    "8,000 fields": lambda: {"json": {"properties": {f"p{i}": {} for i in range(8000)}}},
    "product of branches": lambda: {"json": {"allOf": [
        {"anyOf": [{"properties": {f"k{i}_{j}": {"type": "integer"}}} for j in range(10)]}
        for i in range(12)]}},
    "enum of 45,000": lambda: {"json": {"enum": [f"value {i * 7919}" for i in range(45_000)]}},
    "choice of 45,000": lambda: {"choice": [f"value {i * 7919}" for i in range(45_000)]},
    "repetition": lambda: {"regex": "(a{1000}){1000}"},
    "nested repetition": lambda: {"regex": "((((a{1,99}){1,99}){1,99}){1,99}){1,99}"},
    "a million letters": lambda: {"regex": "a" * 1_000_000},
    "nested groups": lambda: {"regex": "(" * 100_000 + "a" + ")" * 100_000},
    "3,000 rules": lambda: {"grammar": _rules(3000)},
    "optional names": lambda: {"grammar": "start: " + "a* " * 20_000 + '\na: "x"?'},
    "130,000 alternatives": lambda: {"grammar": "start: a" + "|a" * 130_000 + '\na: "x"'},
}  # fmt: skip
