"""Messages of a chat, as clients send them."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

_CLIENTS = "ignored: clients add it to messages that they received"


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a message's content."""

    type: Annotated[str, Meta(description='`"text"` only')]
    text: Annotated[str | None, Meta(description="the text")] = None
    image_url: Annotated[Any, Meta(description="refused: the server reads text")] = None
    input_audio: Annotated[Any, Meta(description="refused: the server reads text")] = None
    video_url: Annotated[Any, Meta(description="refused: the server reads text")] = None
    file: Annotated[Any, Meta(description="refused: the server reads text")] = None


class CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    """The function of a tool call."""

    name: str
    arguments: str
    parsed_arguments: Annotated[Any, Meta(description=_CLIENTS)] = None


class ToolCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A tool call of an earlier answer."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] = "function"
    index: int | None = None


_GIVEN = "given to the chat template; many leave it out of the text"


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message of the conversation."""

    role: Annotated[
        str,
        Meta(
            description="given to the chat template; `developer` as `system` to one that does not "
            "know it"
        ),
    ]
    content: Annotated[
        str | list[Part] | None,
        Meta(description="text, or text parts, which are joined by line breaks"),
    ] = None
    name: Annotated[str | None, Meta(description=_GIVEN)] = None
    reasoning_content: Annotated[str | None, Meta(description=_GIVEN)] = None
    tool_calls: Annotated[
        list[ToolCall] | None,
        Meta(
            description="given to the chat template, arguments as an object; refused if it does "
            "not read them"
        ),
    ] = None
    tool_call_id: Annotated[str | None, Meta(description=_GIVEN)] = None
    refusal: Annotated[str | None, Meta(description="null only")] = None
    audio: Annotated[Any, Meta(description="null only")] = None
    annotations: Annotated[list[Any] | None, Meta(description="null or empty only")] = None
    function_call: Annotated[Any, Meta(description="null only: use `tool_calls`")] = None
    parsed: Annotated[Any, Meta(description=_CLIENTS)] = None
    provider_specific_fields: Annotated[Any, Meta(description=_CLIENTS)] = None
