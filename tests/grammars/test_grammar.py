"""Grammars in the user's terms."""

import json
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.grammars.grammar import Grammar

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}


class Model:
    """As a model of pydantic."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return SCHEMA


def test_a_schema_comes_in_three_forms() -> None:
    forms: list[Any] = [SCHEMA, json.dumps(SCHEMA), Model]
    assert len({Grammar.json_schema(form) for form in forms}) == 1
    assert json.loads(Grammar.json_schema(SCHEMA).text) == SCHEMA
    assert Grammar.json_schema(True).text == "true"


@pytest.mark.parametrize("wrong", ["{", "[1]", 3, {"a": object}, {"a": {1, 2}}])
def test_what_is_no_schema_is_refused(wrong: Any) -> None:
    with pytest.raises(DraftwoodError, match="this is no JSON schema"):
        Grammar.json_schema(wrong)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("red", "give a list of texts"),
        (3, "give a list of texts"),
        ([], "give texts that are not empty"),
        (["a", ""], "give texts that are not empty"),
        (["a", 1], "give texts that are not empty"),
    ],
)
def test_a_choice_needs_texts(options: Any, complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        Grammar.choice(options)


def test_a_text_is_offered_once() -> None:
    assert Grammar.choice(["a", "b", "a"]) == Grammar.choice(("a", "b"))


def test_wrong_fields_are_named() -> None:
    with pytest.raises(DraftwoodError, match=r"'yaml' is no kind of grammar: use Grammar\.json_"):
        Grammar("yaml", "a")  # type: ignore[arg-type]
    with pytest.raises(DraftwoodError, match=r"the grammar \(regex\) is '': give some text"):
        Grammar.regex("")
    with pytest.raises(DraftwoodError, match=r"the grammar \(lark\) is 3: give some text"):
        Grammar.lark(3)  # type: ignore[arg-type]
    with pytest.raises(DraftwoodError, match="no grammar library 'llguidence': did you mean 'llgu"):
        Grammar.regex("a", backend="llguidence")
