"""A chat request's conversation, as the chat template takes it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from draftwood.server.errors import bad_request, refused
from draftwood.server.schemas.chat import ChatRequest
from draftwood.server.schemas.messages import Message, Part, ToolCall
from draftwood.server.text import TextWorker

_ROLES = ("system", "developer", "user", "assistant", "tool")
_VARIABLES = ("reasoning_effort", "verbosity")
_OTHER_PARTS = ("image_url", "input_audio", "video_url", "file")


def render_chat(body: ChatRequest, text: TextWorker, tools: Sequence[Mapping[str, Any]]) -> str:
    """The prompt of a chat.

    Args:
        body: the request.
        text: has the chat template.
        tools: that the template is given.

    Raises:
        ApiError: there is no template, or it cannot take something.
    """
    variables = dict(body.chat_template_kwargs or {})
    variables |= {name: found for name in _VARIABLES if (found := getattr(body, name)) is not None}
    return render(
        body.messages,
        text,
        tools,
        prompt=body.value("add_generation_prompt", True),
        extra=variables,
    )


def render(
    messages: Sequence[Message],
    text: TextWorker,
    tools: Sequence[Mapping[str, Any]],
    *,
    prompt: bool,
    extra: Mapping[str, Any],
) -> str:
    """The text that the chat template makes of a conversation; see :func:`render_chat`."""
    if text.template is None:
        raise bad_request(
            "this model has no chat template: start the server with --chat-template FILE, or use "
            "/v1/completions",
            "messages",
        )
    if not messages:
        raise bad_request("messages is empty: give at least one message", "messages")
    if tools and not text.template_reads("tools"):
        raise refused("tools", "this model's chat template does not read them")
    for name in extra:
        if name in ("messages", "tools", "add_generation_prompt") or not text.template_reads(name):
            raise refused(name, "this model's chat template does not read it")
    given = [_message(each, place, text) for place, each in enumerate(messages)]
    return text.render(given, list(tools) or None, prompt=prompt, variables=extra)


def _message(message: Message, place: int, text: TextWorker) -> dict[str, Any]:
    where = f"messages[{place}]"
    if message.role not in _ROLES:
        raise bad_request(f"{where}.role is {message.role!r}: give {', '.join(_ROLES)}", "messages")
    for name in ("refusal", "audio", "annotations", "function_call"):
        if getattr(message, name):
            raise refused(f"{where}.{name}", "leave it out")
    developer = message.role == "developer" and not text.template_reads("developer")
    found: dict[str, Any] = {
        "role": "system" if developer else message.role,
        "content": _content(message.content, where),
        "name": message.name,
        "reasoning_content": message.reasoning_content,
        "tool_call_id": message.tool_call_id,
    }
    if message.tool_calls:
        if not text.template_reads("tool_calls"):
            raise refused(f"{where}.tool_calls", "this model's chat template does not read them")
        found["tool_calls"] = [_call(each, where) for each in message.tool_calls]
    return {name: value for name, value in found.items() if value is not None}


def _content(content: str | Sequence[Part] | None, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for i, part in enumerate(content):
        if part.type != "text" or part.text is None:
            raise refused(f"{where}.content of type {part.type!r}", "the server reads text parts")
        for name in _OTHER_PARTS:
            if getattr(part, name) is not None:
                raise refused(f"{where}.content[{i}].{name}", "the server reads text parts")
    return "\n".join(part.text or "" for part in content)


def _call(call: ToolCall, where: str) -> dict[str, Any]:
    try:
        # As the body is read: json would take halves of surrogate pairs, which no tokenizer does.
        arguments = msgspec.json.decode(call.function.arguments or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(
            f"{where}.tool_calls: the arguments of {call.function.name!r} are not JSON: {error}",
            "messages",
        ) from error
    function = {"name": call.function.name, "arguments": arguments}
    return {"type": "function", "function": function, **({"id": call.id} if call.id else {})}
