"""Limits on the size of grammars: what a library would take seconds for, or die of.

Libraries read rules and references by recursion in native code, without a limit; a chain of some
thousands ends the whole process. Their time grows with the square of a rule's length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

CHARACTERS: Mapping[str, int] = {"regex": 1 << 18, "lark": 1 << 18, "ebnf": 1 << 18}
"""Most characters of a grammar by its kind."""

LARGEST = 1 << 20
"""Most characters of a grammar of another kind."""

WORDS = 5_000
"""Most names, texts and patterns in a Lark or GBNF grammar."""

RULES = 1_000
"""Most rules of a Lark or GBNF grammar."""

BRANCHES = 1_024
"""Most fields of an object in a JSON schema, and schemas in a list, such as that of ``anyOf``."""

VALUES = 10_000
"""Most texts of a choice, and texts and numbers in a list of a JSON schema, such as ``enum``."""

FUNCTIONS = 128
"""Most functions of a grammar of tool calls, as in OpenAI's API."""

DEPTH = 1_200
"""Most objects and lists in one another, in a JSON schema and all schemas that it refers to."""

_RULE = re.compile(r"^[ \t]*+[?!]?[\w.\-]++(?:\{[^}\n]*+\})?\s*+:", re.MULTILINE)
_TEXT, _PATTERN = r'"(?:\\.|[^"\\])*+"?+', r"/(?:\\.|[^/\\])++/?+"
_CHARACTERS, _SPECIAL, _NAME = r"\[(?:\\.|[^\]\\])*+\]?+", r"<[^<>\s]++>", r"[\w\-]++"
_WORD = {
    "lark": re.compile(f"(?://|#)[^\n]*+|({_TEXT}|{_SPECIAL}|{_PATTERN}|{_NAME})", re.DOTALL),
    "ebnf": re.compile(f"#[^\n]*+|({_TEXT}|{_CHARACTERS}|{_NAME})", re.DOTALL),
}
"""Comments, and words as a group, cut as the libraries cut them: texts, patterns and classes may go
over several lines. What is not closed goes to the end, and no repetition gives back what it took:
the time grows with the length alone."""


def excess(kind: str, text: str) -> str:
    """What a grammar has too much of, in words; empty if it is within all limits."""
    most = CHARACTERS.get(kind, LARGEST)
    if len(text) > most:
        return f"{len(text)} characters: at most {most}"
    if kind in _WORD:
        rules = sum(1 for _ in _RULE.finditer(text))
        if rules > RULES:
            return f"{rules} rules: at most {RULES}"
        words = sum(1 for found in _WORD[kind].finditer(text) if found[1])
        if words > WORDS:
            return f"{words} words: at most {WORDS}"
    if kind not in ("json_schema", "choice"):
        return ""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return ""  # the library says what is wrong
    return _excess_of_schema(given)


def _excess_of_schema(schema: Any) -> str:
    """The same of a JSON schema.

    No path through a schema is longer than itself and all that it refers to, one behind the other.
    """
    nodes = _nodes(schema)
    depths: dict[int, int] = {}
    for node in reversed(nodes):  # the inner ones first
        depths[id(node)] = 1 + max((depths.get(id(each), 0) for each in _inside(node)), default=0)
    # A field may be named so, too, which is then a schema and no reference.
    refers = [node.get("$ref") for node in nodes if isinstance(node, dict)]
    names = {name for name in refers if isinstance(name, str)}
    levels = sum(
        depths.get(id(target), 1) for target in (schema, *(_target(schema, name) for name in names))
    )
    if levels > DEPTH:
        return f"{levels} levels, those that it refers to included: at most {DEPTH}"
    for node in nodes:
        most, name = (VALUES, "values") if _values(node) else (BRANCHES, "fields or schemas")
        if len(node) > most:
            return f"{len(node)} {name} in one place: at most {most}"
    return ""


def _nodes(schema: Any) -> list[dict[str, Any] | list[Any]]:
    """All objects and lists of a schema, outer ones before inner ones."""
    found = [schema] if isinstance(schema, dict | list) else []
    for node in found:  # grows
        found += [each for each in _inside(node) if isinstance(each, dict | list)]
    return found


def _inside(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node


def _values(node: dict[str, Any] | list[Any]) -> bool:
    """Whether it is a list of texts and numbers, such as that of ``enum``."""
    return isinstance(node, list) and not any(isinstance(each, dict) for each in node)


def _target(schema: Any, name: str) -> Any:
    """What a reference points to; the whole schema where it is no path into it."""
    found = schema
    for key in name.removeprefix("#/").split("/") if name.startswith("#/") else ():
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and _is_place(key, found):
            found = found[int(key)]
        else:
            return schema
    return found


def _is_place(key: str, among: list[Any]) -> bool:
    """Whether it is the number of an item; Python makes no integer of thousands of digits."""
    return key.isdecimal() and len(key) <= len(str(len(among))) and int(key) < len(among)
