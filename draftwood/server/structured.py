"""``response_format`` and ``structured_outputs``: the grammar that an answer must have."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.grammars.grammar import Grammar
from draftwood.server.errors import bad_request
from draftwood.server.schemas.fields import SamplingFields

_FORMATS = ("text", "json_object", "json_schema")
_EBNF_RULE = re.compile(r"^[ \t]*+[\w-]++\s*+::=", re.MULTILINE)


def grammar_of(body: SamplingFields) -> Grammar | None:
    """The grammar that a request asks for; None: any text.

    Raises:
        ApiError: a field is not understood, or cannot be honoured.
    """
    given = [
        (name, make, value)
        for name, make, value in (
            ("response_format", _of_format, body.response_format),
            ("structured_outputs", _of_outputs, body.structured_outputs),
        )
        if value is not None
    ]
    found = [(name, made) for name, make, value in given if (made := _made(name, make, value))]
    if len(found) > 1:
        raise bad_request(
            "response_format and structured_outputs both say what the answer must be: give one",
            "structured_outputs",
        )
    if not found:
        return None
    [(name, grammar)] = found
    tools = getattr(body, "tools", None) if getattr(body, "tool_choice", None) != "none" else None
    for other, value in (("tools", tools), ("ignore_eos", body.ignore_eos)):
        if value:
            raise bad_request(f"{name} cannot be combined with {other}: leave one out", name)
    return grammar


def grammar_field(body: SamplingFields) -> str:
    """The field that the grammar of :func:`grammar_of` comes from."""
    # Beside it, response_format can only ask for text.
    return "response_format" if body.structured_outputs is None else "structured_outputs"


def _made(name: str, make: Callable[[Any], Grammar | None], value: Any) -> Grammar | None:
    if not isinstance(value, Mapping):
        raise bad_request(f"{name} is {type(value).__name__}: give an object", name)
    try:
        return make(value)
    except DraftwoodError as error:
        raise bad_request(f"{name}: {error}", name) from error


def _of_format(given: Mapping[str, Any]) -> Grammar | None:
    """The grammar of OpenAI's ``response_format``."""
    kind = given.get("type")
    if kind not in _FORMATS:
        raise DraftwoodError(f"the type is {kind!r}: give {', '.join(_FORMATS)}")
    _only(given, ("type", "json_schema") if kind == "json_schema" else ("type",))
    if kind == "text":
        return None
    if kind == "json_object":
        return Grammar.json_object()
    named = given.get("json_schema")
    if not isinstance(named, Mapping) or "schema" not in named:
        raise DraftwoodError("json_schema has no schema: give {'name': ..., 'schema': {...}}")
    _only(named, ("name", "description", "schema", "strict"))
    return Grammar.json_schema(named["schema"])


def _of_outputs(given: Mapping[str, Any]) -> Grammar:
    """The grammar of vLLM's ``structured_outputs``."""
    _only(given, tuple(_MAKERS))
    asked = [(name, value) for name, value in given.items() if value is not None]
    if len(asked) != 1:
        raise DraftwoodError(f"it has {len(asked)} forms: give one of {', '.join(_MAKERS)}")
    [(name, value)] = asked
    return _MAKERS[name](value)


def _json_object(value: Any) -> Grammar:
    if value is not True:
        raise DraftwoodError("json_object: give true, or leave it out")
    return Grammar.json_object()


def _grammar(value: Any) -> Grammar:
    """A grammar in EBNF if a line begins a rule with its sign, else in Lark's form."""
    if not isinstance(value, str):
        raise DraftwoodError("grammar: give text")
    return Grammar.ebnf(value) if _EBNF_RULE.search(value) else Grammar.lark(value)


_MAKERS: Mapping[str, Callable[[Any], Grammar]] = {
    "json": Grammar.json_schema,
    "json_object": _json_object,
    "regex": Grammar.regex,
    "choice": Grammar.choice,
    "grammar": _grammar,
}


def _only(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise DraftwoodError(f"there is no {name!r}, only {', '.join(known)}")
