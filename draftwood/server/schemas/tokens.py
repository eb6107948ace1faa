"""The bodies of ``/tokenize`` and ``/detokenize``."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from draftwood.server.schemas.messages import Message


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Text or a conversation to encode."""

    model: Annotated[str | None, Meta(description="a served name; may be left out")] = None
    prompt: Annotated[str | None, Meta(description="text")] = None
    messages: Annotated[
        list[Message] | None, Meta(description="a conversation, in the place of `prompt`")
    ] = None
    add_special_tokens: Annotated[
        bool | None,
        Meta(description="those of the tokenizer; by default true for text, false for messages"),
    ] = None
    add_generation_prompt: Annotated[
        bool | None, Meta(description="the template begins an answer; true by default")
    ] = None
    tools: Annotated[
        list[dict[str, Any]] | None, Meta(description="given to the chat template")
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None, Meta(description="given to the chat template")
    ] = None
    return_token_strs: Annotated[
        bool | None, Meta(description="the answer has the tokens' names as well")
    ] = None


class TokenizeResponse(msgspec.Struct, omit_defaults=True):
    """Token ids."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Token ids to decode."""

    tokens: Annotated[list[int], Meta(description="token ids")]
    model: Annotated[str | None, Meta(description="a served name; may be left out")] = None


class DetokenizeResponse(msgspec.Struct):
    """Text."""

    prompt: str
