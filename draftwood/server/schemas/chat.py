"""The body of ``/v1/chat/completions``."""

from typing import Annotated, Any

from msgspec import Meta

from draftwood.server.schemas.fields import SamplingFields
from draftwood.server.schemas.messages import Message


class ChatRequest(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """A chat completion."""

    messages: Annotated[list[Message], Meta(description="the conversation (below)")]
    max_completion_tokens: Annotated[
        int | None, Meta(description="the newer name of `max_tokens`; it wins over it")
    ] = None
    logprobs: Annotated[
        bool | None,
        Meta(description="log probabilities of the tokens, before temperature and penalties"),
    ] = None
    top_logprobs: Annotated[
        int | None, Meta(description="0 to 20 likeliest tokens beside each; with `logprobs`")
    ] = None
    tools: Annotated[
        list[dict[str, Any]] | None,
        Meta(
            description="functions, given to the chat template; refused if it reads none. The "
            "arguments of one with `strict: true` keep to its schema "
            "([below](#tools-and-reasoning))"
        ),
    ] = None
    tool_choice: Annotated[
        str | dict[str, Any] | None,
        Meta(
            description='`"auto"`; `"none"`: the template gets no tools; `"required"`, or a '
            "function by its name: the answer is such calls ([below](#tools-and-reasoning))"
        ),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None,
        Meta(
            description="false: at most one call ([below](#tools-and-reasoning)); true by default"
        ),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        Meta(description="given to the chat template; refused if it does not read them"),
    ] = None
    reasoning_effort: Annotated[
        str | None,
        Meta(description="given to the chat template; refused if it does not read it"),
    ] = None
    add_generation_prompt: Annotated[
        bool | None, Meta(description="the template begins an answer; true by default")
    ] = None
    continue_final_message: Annotated[
        bool | None, Meta(description="false only: end with a message of the user")
    ] = None
    functions: Annotated[Any, Meta(description="null only: use `tools`")] = None
    function_call: Annotated[Any, Meta(description="null only: use `tool_choice`")] = None
    modalities: Annotated[
        list[str] | None, Meta(description='`["text"]` only: the server writes text')
    ] = None
    audio: Annotated[Any, Meta(description="null only: the server writes text")] = None
    prediction: Annotated[
        Any, Meta(description="null only: drafts come from the method's own sources")
    ] = None
    web_search_options: Annotated[Any, Meta(description="null only")] = None
    verbosity: Annotated[
        str | None,
        Meta(description="given to the chat template; refused if it does not read it"),
    ] = None
    safety_identifier: Annotated[
        str | None, Meta(description="a label; changes nothing and is not kept")
    ] = None
    prompt_cache_key: Annotated[
        str | None, Meta(description="a label; changes nothing and is not kept")
    ] = None
