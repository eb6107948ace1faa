"""The tools of a chat: what is refused, and the grammar of answers that must keep to them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.grammars.grammar import Grammar
from draftwood.grammars.tool_calls import Mode, ToolCalls
from draftwood.server.errors import bad_request, refused
from draftwood.server.schemas.chat import ChatRequest

_FUNCTION = ("name", "description", "parameters", "strict")


@dataclass(frozen=True)
class CallForm:
    """How a family of models writes a tool call: JSON between two literal texts.

    Attributes:
        opening: before the JSON.
        closing: behind it.
        reasoning: the texts around the reasoning, if there is any.
    """

    opening: str
    closing: str
    reasoning: tuple[str, str] | None = None


def call_form(template: Mapping[str, Any] | None) -> CallForm | None:
    """The form of a response template's calls; None if they are not JSON with the function's name.

    Args:
        template: transformers' response template of a family of models.
    """
    fields = (template or {}).get("fields", {})
    calls = fields.get("tool_calls", {})
    if calls.get("content") != "json" or calls.get("content_args"):
        return None
    if calls.get("transform") != {"type": "function", "function": "{content}"}:
        return None
    opening, closing = _literal(calls, "open"), _literal(calls, "close")
    if opening is None or closing is None:
        return None
    thought = fields.get("reasoning_content", {})
    before, behind = _literal(thought, "open"), _literal(thought, "close")
    around = None if before is None or behind is None else (before, behind)
    return CallForm(opening, closing, around)


def _literal(field: Mapping[str, Any], name: str) -> str | None:
    """The text that begins or ends a field; white space before it does not count."""
    if isinstance(found := field.get(name), str):
        return found
    pattern = str(field.get(f"{name}_pattern", "")).removeprefix(r"\s*")
    return pattern if pattern and re.escape(pattern) == pattern else None


def tools_of(body: ChatRequest, *, parsed: bool) -> Sequence[dict[str, Any]]:
    """The tools that the model may call; ``parsed``: whether calls are told from text.

    Raises:
        ApiError: the tools, or the choice among them, are not understood or cannot be honoured.
    """
    choice = body.tool_choice
    if choice is not None and not body.tools and choice != "none":
        raise bad_request("tool_choice needs tools", "tool_choice")
    for place, tool in enumerate(body.tools or ()):
        _check(tool, f"tools[{place}]")
    names = [tool["function"]["name"] for tool in body.tools or ()]
    if len(set(names)) < len(names):
        raise bad_request("two tools have the same name", "tools")
    if choice not in (None, "auto", "none", "required") and _named(choice) not in names:
        raise bad_request(
            "tool_choice: give 'auto', 'none', 'required' or {'type': 'function', 'function': "
            f"{{'name': ...}}}} with the name of a tool ({', '.join(names)})",
            "tool_choice",
        )
    if not body.tools or choice == "none":
        return ()
    if not parsed:
        raise refused(
            "tools",
            "transformers (5.23 or newer) has no response template for this model, so its calls "
            "could not be told from text",
        )
    if body.skip_special_tokens is False:
        raise refused("skip_special_tokens", "false, with tools: calls are parsed from the text")
    return body.tools


def _check(tool: dict[str, Any], place: str) -> None:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise bad_request(f"{place}: give an object of type 'function'", "tools")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise bad_request(f"{place}.function has no name", "tools")
    for known, given, where in (
        (("type", "function"), tool, place),
        (_FUNCTION, function, f"{place}.function"),
    ):
        for name in given:
            if name not in known:
                raise bad_request(
                    f"{where}: there is no {name!r}, only {', '.join(known)}", "tools"
                )
    if not isinstance(function.get("strict"), bool | None):
        raise bad_request(f"{place}.function.strict: give true or false", "tools")
    if not isinstance(function.get("parameters"), dict | None):
        raise bad_request(f"{place}.function.parameters: give a JSON schema", "tools")


def _named(choice: str | dict[str, Any] | None) -> str | None:
    """The function that a choice names."""
    if not isinstance(choice, dict) or set(choice) != {"type", "function"}:
        return None
    function = choice["function"]
    if choice["type"] != "function" or not isinstance(function, dict) or set(function) != {"name"}:
        return None
    name = function["name"]
    return name if isinstance(name, str) else None


def asks_grammar(body: ChatRequest, tools: Sequence[dict[str, Any]]) -> str:
    """The field for which an answer is held to a grammar of its calls; empty: none is.

    Args:
        body: of the request.
        tools: that the model may call.
    """
    if not tools:
        return ""
    if body.tool_choice not in (None, "auto", "none"):
        return "tool_choice"
    if any(tool["function"].get("strict") for tool in tools):
        return "tools"
    return "parallel_tool_calls" if body.parallel_tool_calls is False else ""


def tool_grammar(
    body: ChatRequest, tools: Sequence[dict[str, Any]], form: CallForm | None, prompt: str
) -> Grammar | None:
    """The grammar of an answer that calls tools; None: the model is free in what it writes.

    Args:
        body: of the request.
        tools: that the model may call.
        form: of calls.
        prompt: as text.

    Raises:
        ApiError: one is asked for, and the model's form of calls or a schema does not allow it.
    """
    asks = asks_grammar(body, tools)
    if not asks:
        return None
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    forced, single = asks == "tool_choice", body.parallel_tool_calls is False
    if form is None:
        raise refused(
            asks,
            "this model does not write its calls as JSON with the function's name, so that no "
            "grammar can ask for them: leave it out, and tool_choice 'auto' or 'none'",
        )
    if body.ignore_eos:
        raise bad_request(f"{asks} cannot be combined with ignore_eos: leave one out", asks)
    name = _named(body.tool_choice)
    if name is not None:
        functions = {name: functions[name]}
    reasoning = form.reasoning
    calls = ToolCalls(
        {name: _schema(each, forced=forced) for name, each in functions.items()},
        form.opening,
        form.closing,
        _mode(forced=forced, single=single or name is not None),
        reasoning,
        reasons=reasoning is not None and prompt.rstrip().endswith(reasoning[0]),
    )
    try:
        return Grammar.tool_calls(calls)
    except DraftwoodError as error:
        raise bad_request(f"tools: {error}", "tools") from error


def _mode(*, forced: bool, single: bool) -> Mode:
    if forced:
        return "one" if single else "some"
    return "at most one" if single else "any"


def _schema(function: Mapping[str, Any], *, forced: bool) -> Mapping[str, Any]:
    """The schema that the arguments keep to; any object for a function that is not strict."""
    schema = function.get("parameters") or {"type": "object"}
    found: Mapping[str, Any] = schema if forced or function.get("strict") else {"type": "object"}
    return found
