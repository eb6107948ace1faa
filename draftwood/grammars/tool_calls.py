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
        reasoning: literal texts around a model's reasoning, which may come before the calls.
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
        rules = [
            f"start: {self._start(special)}",
            r"plain: /(.|\n)*/",
            _with_marks("text", special, self.opening),
            r"space: /[ \n]{0,2}/",
            f"call: {' | '.join(f'call_{i}' for i, _ in enumerate(self.functions))}",
            f"rest: space call space {_literal(self.closing, special)}",
        ]
        for place, (name, schema) in enumerate(self.functions.items()):
            begin = f'{{"name": {json.dumps(name)}, "arguments": '
            rules.append(f'call_{place}: {json.dumps(begin)} %json {json.dumps(schema)} "}}"')
        if not self._must:
            rules.append(_up_to("before", "text", self.opening, special))
        if self.reasoning is not None:
            closing = self.reasoning[1]
            # Where there must be calls, no mark may end the text before them.
            inner = "inner: plain" if self._must else _with_marks("inner", special, closing)
            rules += [inner, _up_to("thought", "inner", closing, special)]
        return "\n".join(rules)

    @property
    def _must(self) -> bool:
        """Whether there have to be calls."""
        return self.mode in ("some", "one")

    def _start(self, special: Mapping[str, int]) -> str:
        thought, call = self._thought(special), f"(space {_literal(self.opening, special)} rest)"
        if self._must:
            return f"{thought} {call}{'+' if self.mode == 'some' else ''}"
        forms = ["(before rest)* text"] if self.mode == "any" else ["before rest space", "text"]
        # A thought may speak of calls without making one, if it has begun, or begins with a token:
        # tags that are text cannot be told from other text.
        if self.reasoning is not None and (self.reasons or self.reasoning[0] in special):
            forms = [*(f"{thought} {form}" for form in forms), "text"]
        return " | ".join(forms)

    def _thought(self, special: Mapping[str, int]) -> str:
        """The reasoning before calls, if there may be any."""
        if self.reasoning is None:
            return ""
        if self.reasons:
            return "thought"
        return f"({_literal(self.reasoning[0], special)} thought)?"


def _with_marks(name: str, special: Mapping[str, int], but: str) -> str:
    """A rule of any text with special tokens, one of them excepted."""
    marks = sorted(number for text, number in special.items() if text != but)
    return f"{name}: plain (<[{','.join(map(str, marks))}]> plain)*" if marks else f"{name}: plain"


def _up_to(name: str, text: str, end: str, special: Mapping[str, int]) -> str:
    """A rule of any text up to the first place of an end, the end included."""
    if end in special:
        return f"{name}: {text} <[{special[end]}]>"
    escaped = re.escape(end).replace("/", r"\/")
    return f"{name}[lazy]: /(.|\\n)*{escaped}/"


def _literal(text: str, special: Mapping[str, int]) -> str:
    return f"<[{special[text]}]>" if text in special else json.dumps(text)
