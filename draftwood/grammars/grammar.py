"""A grammar that a request's text must have, in the user's terms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, Literal, TypeAlias, get_args

from draftwood.errors import DraftwoodError, did_you_mean
from draftwood.grammars import backends
from draftwood.grammars.limits import FUNCTIONS, excess
from draftwood.grammars.tool_calls import ToolCalls

Kind: TypeAlias = Literal[
    "json_object", "json_schema", "regex", "choice", "lark", "ebnf", "tool_calls"
]

DEFAULT: Final = "llguidance"
"""The grammar library that is used if none is named."""


def backend_names() -> list[str]:
    """The grammar libraries that can be named."""
    return sorted(module.name for module in iter_modules(backends.__path__))


def wrong(grammar: Grammar, said: str) -> DraftwoodError:
    """The error of a grammar that a library does not take; ``said``: its own words."""
    return DraftwoodError(f"the grammar ({grammar.kind}) is wrong: {said.strip()}")


@dataclass(frozen=True)
class Grammar:
    """The form that a request's text must have; made by one of its class methods.

    Attributes:
        kind: of the text.
        text: a JSON schema, a regular expression, a JSON list of strings, or a grammar.
        backend: the library that compiles it: ``"llguidance"`` or ``"xgrammar"``.
        fixed_spaces: JSON with one space behind each comma and colon and no other, as
            ``json.dumps`` writes it; else JSON's free white space.

    Raises:
        DraftwoodError: a field is not of its type, too long, or no such library is known.
    """

    kind: Kind
    text: str = ""
    backend: str = DEFAULT
    fixed_spaces: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise DraftwoodError(
                f"{self.kind!r} is no kind of grammar: use Grammar."
                f"{', Grammar.'.join(get_args(Kind))}"
            )
        if not isinstance(self.text, str) or (not self.text and self.kind != "json_object"):
            raise DraftwoodError(f"the grammar ({self.kind}) is {self.text!r}: give some text")
        if too_much := excess(self.kind, self.text):
            raise DraftwoodError(f"the grammar ({self.kind}) has {too_much}")
        if self.backend not in (known := backend_names()):
            hint = did_you_mean(str(self.backend), known)
            raise DraftwoodError(
                f"there is no grammar library {self.backend!r}: {hint} use {' or '.join(known)}"
            )

    @property
    def schema(self) -> str:
        """The JSON schema of a grammar of JSON, as text."""
        return self.text or json.dumps({"type": "object"})

    def check(self) -> None:
        """Check the grammar, as far as that goes without a tokenizer.

        Raises:
            DraftwoodError: it is wrong, or its library is not installed.
        """
        import_module(f"{backends.__name__}.{self.backend}").check(self)

    @classmethod
    def json_object(cls, *, backend: str = DEFAULT, fixed_spaces: bool = False) -> Grammar:
        """Any JSON object."""
        return cls("json_object", "", backend, fixed_spaces)

    @classmethod
    def json_schema(
        cls,
        schema: Mapping[str, Any] | bool | str | type,
        *,
        backend: str = DEFAULT,
        fixed_spaces: bool = False,
    ) -> Grammar:
        """JSON of a schema, given as a dict, as text, or as a model of pydantic.

        Raises:
            DraftwoodError: it is none of these, or no JSON.
        """
        given: Any = schema
        if callable(getattr(given, "model_json_schema", None)):
            given = given.model_json_schema()
        try:
            found = json.loads(given) if isinstance(given, str) else given
            if not isinstance(found, Mapping | bool):
                raise TypeError(f"it is {type(found).__name__}")
            text = json.dumps(found, default=dict)
        except (TypeError, ValueError, RecursionError) as error:
            raise DraftwoodError(
                f"this is no JSON schema ({error}): give a dict, its JSON text, or a class of "
                "pydantic"
            ) from error
        return cls("json_schema", text, backend, fixed_spaces)

    @classmethod
    def regex(cls, pattern: str, *, backend: str = DEFAULT) -> Grammar:
        """Text that a regular expression matches as a whole."""
        return cls("regex", pattern, backend)

    @classmethod
    def choice(cls, options: Sequence[str], *, backend: str = DEFAULT) -> Grammar:
        """One of some texts.

        Raises:
            DraftwoodError: there is none, or one is empty.
        """
        if isinstance(options, str) or not isinstance(options, Sequence):
            raise DraftwoodError(f"the options are {options!r}: give a list of texts")
        if not options or not all(isinstance(each, str) and each for each in options):
            raise DraftwoodError(f"the options are {[*options]}: give texts that are not empty")
        return cls("choice", json.dumps(list(dict.fromkeys(options))), backend)

    @classmethod
    def lark(cls, text: str, *, backend: str = DEFAULT) -> Grammar:
        """Text of a Lark grammar, whose first rule is ``start``."""
        return cls("lark", text, backend)

    @classmethod
    def ebnf(cls, text: str, *, backend: str = DEFAULT) -> Grammar:
        """Text of a grammar in EBNF as llama.cpp writes it (GBNF), whose first rule is ``root``."""
        return cls("ebnf", text, backend)

    @classmethod
    def tool_calls(cls, calls: ToolCalls) -> Grammar:
        """Text with calls of given functions, compiled by llguidance.

        Raises:
            DraftwoodError: there is no function, or too many, or the schema of one is none.
        """
        if not 1 <= len(calls.functions) <= FUNCTIONS:
            raise DraftwoodError(f"{len(calls.functions)} functions: give 1 to {FUNCTIONS}")
        for name, schema in calls.functions.items():
            try:
                cls.json_schema(schema)
            except DraftwoodError as error:
                raise DraftwoodError(f"the arguments of {name}: {error}") from error
        try:
            text = calls.json()
        except RecursionError as error:
            raise DraftwoodError("a schema of the arguments is nested too deeply") from error
        return cls("tool_calls", text)
