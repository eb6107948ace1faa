"""The body of ``/v1/completions``."""

from typing import Annotated, Any

from msgspec import Meta

from draftwood.server.schemas.fields import SamplingFields


class CompletionRequest(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """A text completion."""

    prompt: Annotated[
        str | list[str | int | list[int]],
        Meta(description="text, token ids, or a list of either"),
    ]
    logprobs: Annotated[
        int | None,
        Meta(description="0 to 20 likeliest tokens, with log probabilities, beside each"),
    ] = None
    echo: Annotated[
        bool | None, Meta(description="the text begins with the prompt; not with `logprobs`")
    ] = None
    best_of: Annotated[
        int | None, Meta(description="equal to `n` only: all choices are returned")
    ] = None
    suffix: Annotated[str | None, Meta(description="null only: the model continues text")] = None
    add_special_tokens: Annotated[
        bool | None,
        Meta(description="text gets the special tokens of the tokenizer; true by default"),
    ] = None
    prompt_logprobs: Annotated[
        Any, Meta(description="null only: prompts have no log probabilities")
    ] = None
