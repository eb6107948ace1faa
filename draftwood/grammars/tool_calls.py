"""The grammar of texts with tool calls: a model's own words around calls of given functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

Mode: TypeAlias = Literal["any", "some", "one", "at most one"]
"""How many calls a text has."""


@dataclass(frozen=True)
class ToolCalls:
    """Texts with calls such as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

    Attributes:
        functions: JSON schema of the arguments, by name.
        opening: literal text before the JSON of a call.
        closing: literal text behind it.
        mode: how many calls a text has. Beside calls that it must have it has no other text but
            the reasoning.
        reasoning: literal texts around a model's reasoning, which may come before calls that a text
            must have.
        reasons: the prompt has begun the reasoning, so that the text ends it.
    """

    functions: Mapping[str, Any]
    opening: str
    closing: str
    mode: Mode = "some"
    reasoning: tuple[str, str] | None = None
    reasons: bool = False

    def json(self) -> str:
        """All of it as JSON."""
        # asdict() would descend into schemas, deeper than Python allows.
        return json.dumps(
            {each.name: getattr(self, each.name) for each in fields(self)}, default=dict
        )

    @classmethod
    def of_json(cls, text: str) -> ToolCalls:
        """From what :meth:`json` gives."""
        return cls(**json.loads(text))

    def lark(self, special: Mapping[str, int]) -> str:
        """The grammar in llguidance's Lark.

        Args:
            special: ids of tokens that no regular expression matches, by their text.
        """
        marks = sorted(number for text, number in special.items() if text != self.opening)
        rules = [
            f"start: {self._start(special)}",
            r"plain: /(.|\n)*/",
            f"text: plain (<[{','.join(map(str, marks))}]> plain)*" if marks else "text: plain",
            r"space: /[ \n]{0,2}/",
            f"call: {' | '.join(f'call_{i}' for i, _ in enumerate(self.functions))}",
            f"rest: space call space {_literal(self.closing, special)}",
        ]
        for place, (name, schema) in enumerate(self.functions.items()):
            begin = f'{{"name": {json.dumps(name)}, "arguments": '
            rules.append(f'call_{place}: {json.dumps(begin)} %json {json.dumps(schema)} "}}"')
        if self.mode in ("any", "at most one"):
            rules.append(_up_to("before", "text", self.opening, special))
        elif self.reasoning is not None:
            rules.append(_up_to("thought", "plain", self.reasoning[1], special))
        return "\n".join(rules)

    def _start(self, special: Mapping[str, int]) -> str:
        if self.mode == "any":
            return "(before rest)* text"
        if self.mode == "at most one":
            return "before rest space | text"
        calls = f"(space {_literal(self.opening, special)} rest)"
        calls += "+" if self.mode == "some" else ""
        if self.reasoning is None:
            return calls
        if self.reasons:
            return f"thought {calls}"
        return f"({_literal(self.reasoning[0], special)} thought)? {calls}"


def _up_to(name: str, text: str, end: str, special: Mapping[str, int]) -> str:
    """A rule of any text up to the first place of an end, the end included."""
    if end in special:
        return f"{name}: {text} <[{special[end]}]>"
    escaped = re.escape(end).replace("/", r"\/")
    return f"{name}[lazy]: /(.|\\n)*{escaped}/"


def _literal(text: str, special: Mapping[str, int]) -> str:
    return f"<[{special[text]}]>" if text in special else json.dumps(text)
