"""The fields that chat and text completions share."""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """``stream_options``."""

    include_usage: Annotated[
        bool | None, Meta(description="a last chunk has the usage of all choices")
    ] = None
    continuous_usage_stats: Annotated[
        bool | None, Meta(description="every chunk has the usage so far")
    ] = None


class SamplingFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How tokens are chosen, when they end and how they are reported."""

    model: Annotated[str | None, Meta(description="a served name; may be left out")] = None
    n: Annotated[
        int | None,
        Meta(
            description="choices of each prompt, 1 to 128; choice i is sampled with `seed` + i. "
            "The prompt is computed once ([below](#prompts-that-begin-alike))"
        ),
    ] = None
    stream: Annotated[bool | None, Meta(description="server-sent events")] = None
    stream_options: Annotated[
        StreamOptions | None, Meta(description="below; only with `stream`")
    ] = None
    max_tokens: Annotated[
        int | None,
        Meta(description="most new tokens, cut to what the context holds"),
    ] = None
    min_tokens: Annotated[
        int | None,
        Meta(
            description="nothing ends the text before so many tokens; refused with a grammar, "
            "whose texts may end earlier"
        ),
    ] = None
    stop: Annotated[
        str | list[str] | None, Meta(description="strings that end the text, left out of it")
    ] = None
    stop_token_ids: Annotated[
        list[int] | None, Meta(description="further tokens that end the text, left out of it")
    ] = None
    ignore_eos: Annotated[
        bool | None, Meta(description="the model's end tokens do not end the text")
    ] = None
    skip_special_tokens: Annotated[
        bool | None,
        Meta(
            description="false: the text shows special tokens, and a chat's is not parsed; true by "
            "default"
        ),
    ] = None
    seed: Annotated[
        int | None, Meta(description="decides all tokens; drawn by the server if left out")
    ] = None
    temperature: Annotated[float | None, Meta(description="divides the logits; 0 is greedy")] = None
    top_p: Annotated[
        float | None, Meta(description="keep the fewest tokens with this total probability")
    ] = None
    top_k: Annotated[int | None, Meta(description="keep the k likeliest tokens; 0 and -1: all")] = (
        None
    )
    min_p: Annotated[
        float | None,
        Meta(description="drop tokens below this share of the largest probability"),
    ] = None
    repetition_penalty: Annotated[
        float | None, Meta(description="divides logits of tokens of the prompt and the text")
    ] = None
    presence_penalty: Annotated[
        float | None,
        Meta(description="-2 to 2, subtracted from the logit of every generated token"),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        Meta(description="-2 to 2, subtracted from a token's logit each time it was generated"),
    ] = None
    logit_bias: Annotated[
        dict[int, float] | None,
        Meta(description="-100 to 100, added to the logits of these token ids"),
    ] = None
    speculate: Annotated[
        bool | None,
        Meta(description="false: decode this request plainly, one token a step"),
    ] = None
    token_sources: Annotated[
        bool | None,
        Meta(description="each token's text, and the source that drafted it (below)"),
    ] = None
    user: Annotated[
        str | None,
        Meta(
            description="whose text it is: users share neither drafts nor cached prefixes, nor do "
            "clients with different keys"
        ),
    ] = None
    response_format: Annotated[
        Any,
        Meta(
            description="what the answer must be: `text`, `json_object`, or `json_schema`, always "
            "kept to strictly; not with `tools`"
        ),
    ] = None
    structured_outputs: Annotated[
        Any,
        Meta(
            description="the same as vLLM spells it: one of `json` (a schema), `json_object`, "
            "`regex`, `choice`, `grammar` (EBNF or Lark)"
        ),
    ] = None
    metadata: Annotated[
        dict[str, Any] | None, Meta(description="a label; changes nothing and is not kept")
    ] = None
    store: Annotated[bool | None, Meta(description="false only: nothing is stored")] = None
    service_tier: Annotated[
        str | None, Meta(description='`"auto"` and `"default"` only: there is one tier')
    ] = None

    def value(self, name: str, default: T) -> T:
        """The field's value, or a default if it was left out or null."""
        found = getattr(self, name)
        return default if found is None else found

    @property
    def has_form(self) -> bool:
        """Whether a form is named that the answer must have."""
        text = self.response_format in (None, {"type": "text"})
        return not text or self.structured_outputs is not None
