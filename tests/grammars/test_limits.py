"""Grammars that are too large are refused before a library reads them: some would kill it."""

import json
import time
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.grammars.grammar import Grammar
from draftwood.grammars.limits import BRANCHES, CHARACTERS, DEPTH, LARGEST, RULES, WORDS, excess


def chain(links: int, **around: str) -> dict[str, Any]:
    """A schema of definitions that each refer to the one before."""
    found: dict[str, Any] = {"d0": {"type": "integer"}}
    for i in range(1, links):
        link: dict[str, Any] = {"$ref": f"#/$defs/d{i - 1}"}
        for keyword in around.values():
            link = {keyword: [link] if keyword.endswith("Of") else link}
        found[f"d{i}"] = link
    return {"$ref": f"#/$defs/d{links - 1}", "$defs": found}


def rules(count: int, sign: str) -> str:
    """A grammar in which every rule is the next one or a letter."""
    first = "root" if sign == "::=" else "start"
    listed = [f'r{i} {sign} r{i + 1} | "x"' for i in range(count)]
    return "\n".join([f"{first} {sign} r0", *listed, f'r{count} {sign} "z"'])


REFUSED: dict[str, tuple[str, str, str]] = {
    "characters": ("regex", "a" * (CHARACTERS["regex"] + 1), "characters: at most 262144"),
    "schema's characters": ("json_schema", " " * LARGEST + "{}", "at most 1048576"),
    "references": ("json_schema", json.dumps(chain(3000)), f"at most {DEPTH}"),
    "references in lists": ("json_schema", json.dumps(chain(500, a="anyOf")), f"at most {DEPTH}"),
    "names": (
        "json_schema",
        json.dumps({"$ref": "n0", "$defs": {str(i): {"$id": f"n{i}", "$ref": f"n{i + 1}"}
                                            for i in range(2000)}}),
        f"at most {DEPTH}",
    ),
    "branches": ("json_schema", json.dumps({"anyOf": [{}] * (BRANCHES + 1)}), "in one place"),
    "fields": (
        "json_schema",
        json.dumps({"properties": {f"p{i}": {} for i in range(BRANCHES + 1)}}),
        "in one place",
    ),
    "values": ("json_schema", json.dumps({"enum": [*range(10_001)]}), "at most 10000"),
    "options": ("choice", json.dumps(["ab"] * 10_001), "values in one place: at most 10000"),
    "rules of Lark": ("lark", rules(RULES, ":"), f"rules: at most {RULES}"),
    "rules of GBNF": ("ebnf", rules(RULES, "::="), f"rules: at most {RULES}"),
    "alternatives": ("lark", 'start: "a"' + '|"a"' * WORDS, f"words: at most {WORDS}"),
    "optional parts": ("lark", f"start: [{'a ' * WORDS}]", f"words: at most {WORDS}"),
    "words behind a special token": ("lark", "start: </think> " + "a " * WORDS, "words: at most"),
    "words behind a broken pattern": ("lark", "start: /\n/ " + "a " * WORDS, "words: at most"),
    "words behind a broken class": ("ebnf", 'root ::= [\n"] ' + "a " * WORDS, "words: at most"),
    "rules over two lines": ("ebnf", "a\n::= b\n" * (RULES + 1), "rules: at most"),
    "words between comments": ("lark", f'start: a // "\na: {"b " * WORDS}\n// "', "words: at most"),
    "optional names": ("lark", 'a: "x"?\nstart: ' + "a* " * WORDS, f"words: at most {WORDS}"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_too_large_is_refused_by_its_number(name: str) -> None:
    kind, text, says = REFUSED[name]
    began = time.monotonic()
    with pytest.raises(DraftwoodError, match=says):
        Grammar(kind, text)  # type: ignore[arg-type]
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", ["lark", "ebnf"])
@pytest.mark.parametrize(
    "part", ["[", '"', '"\\', "\n", "/a", "/\\", "a{", " ", "\n ", "#", "-", "?", "[\\", "a ", ":"]
)
def test_the_time_to_look_grows_with_the_length_alone(kind: str, part: str) -> None:
    text = part * (CHARACTERS[kind] // len(part))
    began = time.monotonic()
    excess(kind, text)
    assert time.monotonic() - began < 5


def test_words_are_told_from_comments_and_classes() -> None:
    words = " ".join(["a"] * (WORDS - 3))
    assert not excess("lark", f'start: {words} "b c" /d e/ // f " g\n# h i')
    assert excess("lark", f'start: {words} "b c" /d e/ f')
    assert not excess("ebnf", f'root ::= {words} [a-z "] "b" # [ c')
    assert excess("ebnf", f'root ::= {words} [a-z "] "b" c')


def test_overlapping_references_take_no_time_of_their_own() -> None:
    wide = {f"p{i}": {"enum": list(range(40))} for i in range(1000)}
    refers = {f"r{i}": {"$ref": f"other-{i}"} for i in range(600)}
    began = time.monotonic()
    assert excess("json_schema", json.dumps({"properties": wide, "$defs": refers}))
    assert time.monotonic() - began < 5


def test_what_is_in_use_is_within_the_limits() -> None:
    node = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    fields = {f"f{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i}"}} for i in range(100)}
    record = {"type": "object", "properties": {"a/b": {"type": ["string", "null"]}}}
    defined = {"properties": fields, "$defs": {f"d{i}": record for i in range(100)}}
    for schema in (node, defined, chain(200, a="anyOf"), {"enum": [*range(10_000)]}, True):
        assert excess("json_schema", json.dumps(schema)) == ""
    assert excess("json_schema", '{"$ref": "#/$defs/a~1b/0", "$defs": {"a/b": [{}]}}') == ""
    assert excess("json_schema", '{"properties": {"$ref": {"type": "string"}}}') == "", "a field"
    digits = "9" * 5000
    assert excess("json_schema", json.dumps({"$ref": f"#/anyOf/{digits}", "anyOf": [{}]})) == ""
    assert excess("json_schema", "{") == "", "the library says so"
    assert excess("lark", rules(RULES - 2, ":")) == ""
    assert excess("choice", json.dumps([f"v{i}" for i in range(10_000)])) == ""
