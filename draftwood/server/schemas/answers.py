"""What completions return: whole, and as chunks of a stream."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from draftwood.engine.request import Completion

FinishReason = Literal["stop", "length", "tool_calls"]


def finish_reason(completion: Completion) -> FinishReason:
    """The API's name of the reason for which a choice has ended."""
    return "length" if completion.reason in ("length", "context") else "stop"


class PromptTokensDetails(msgspec.Struct):
    """The tokens of the prompts that were not computed: an earlier text begins with them."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Tokens of a prompt and of all its choices; the details once they have ended."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | msgspec.UnsetType = msgspec.UNSET


class SpeculativeStats(msgspec.Struct):
    """What drafting did for a choice (vLLM's names, and ``sources``).

    Attributes:
        mean_acceptance_length: committed tokens a step, the target's own included; null before
            the first step.
        draft_acceptance_rate: accepted of drafted tokens; null if none was drafted.
        acceptance_histogram: entry j counts the steps that accepted j drafted tokens.
        num_spec_steps: steps after the prompt.
        num_accepted_draft_tokens: accepted drafted tokens.
        num_draft_tokens: drafted tokens, those of all branches.
        num_spec_tokens: most that a step may draft.
        sources: accepted drafted tokens by the source that drafted them.
    """

    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    num_spec_tokens: int
    sources: dict[str, int]


class Metrics(msgspec.Struct):
    """Where vLLM reports the statistics of a response with one choice."""

    speculative_decoding: SpeculativeStats


class TokenSource(msgspec.Struct):
    """The text that a token added, and the source that drafted it; null: it is the target's own."""

    text: str
    source: str | None


class TopLogprob(msgspec.Struct):
    """A likely token at some place of a chat's answer."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob):
    """A token of a chat's answer."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """All tokens of a chat's answer, or of a chunk of it."""

    content: list[ChatLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct):
    """The log probabilities of a text completion."""

    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]] | None


class Function(msgspec.Struct):
    """The function that a tool call names, its arguments as JSON text."""

    name: str
    arguments: str


class AnswerToolCall(msgspec.Struct, kw_only=True):
    """A tool call of an answer; ``index`` in streams."""

    id: str
    function: Function
    type: Literal["function"] = "function"
    index: int | msgspec.UnsetType = msgspec.UNSET


class AnswerMessage(msgspec.Struct, kw_only=True):
    """The message of a chat's answer."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[AnswerToolCall] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct):
    """A choice of a chat completion."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    speculative_decoding_stats: SpeculativeStats
    token_sources: Sequence[TokenSource] | msgspec.UnsetType = msgspec.UNSET


class ChatCompletion(msgspec.Struct, kw_only=True):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    metrics: Metrics | msgspec.UnsetType = msgspec.UNSET


class ChatDelta(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a chunk adds to a message."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[AnswerToolCall] | None = None


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    """What a chunk adds to a choice of a chat completion."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    speculative_decoding_stats: SpeculativeStats | msgspec.UnsetType = msgspec.UNSET
    token_sources: Sequence[TokenSource] | msgspec.UnsetType = msgspec.UNSET


class TextChoice(msgspec.Struct, kw_only=True):
    """A choice of a text completion, or what a chunk adds to it."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: FinishReason | None = None
    speculative_decoding_stats: SpeculativeStats | msgspec.UnsetType = msgspec.UNSET
    token_sources: Sequence[TokenSource] | msgspec.UnsetType = msgspec.UNSET


class Chunk(msgspec.Struct, kw_only=True):
    """A chunk of a stream; ``usage`` is null until the last one if the client asked for it."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[ChatChunkChoice] | Sequence[TextChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    metrics: Metrics | msgspec.UnsetType = msgspec.UNSET


class TextCompletion(msgspec.Struct, kw_only=True):
    """A text completion."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    metrics: Metrics | msgspec.UnsetType = msgspec.UNSET
