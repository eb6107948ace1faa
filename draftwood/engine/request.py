"""Requests, the events that stream from the engine, and completions."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import torch

from draftwood.engine.logprobs import TokenLogprob
from draftwood.engine.stats import StepStats, Tally
from draftwood.errors import DraftwoodError, RequestFailed, integer, integers
from draftwood.grammars.grammar import Grammar
from draftwood.protocols import Outcome, Prefill, TargetInfo
from draftwood.sampling.sampler import Sampler, SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FinishReason = Literal["eos", "stop", "length", "context", "cancelled", "error"]

_LARGEST_ID = 2**31 - 1
"""Of a token. An id that ends a sequence may lie outside the vocabulary: configurations have -1."""


@dataclass(frozen=True, eq=False)
class Request:
    """One sequence to generate.

    Attributes:
        prompt: token ids, at least one, or text (needs a tokenizer).
        max_new_tokens: most tokens to generate.
        sampling: how p is formed from the logits, and the seed.
        eos: token ids that end the sequence, the one met being the last token and not in the text;
            None: the model's own, an empty set: no token does.
        stop: strings that end the sequence and are left out of its text (needs a tokenizer).
        min_new_tokens: neither a token nor a string ends the sequence before so many tokens.
        skip_special_tokens: leave special tokens out of the text.
        shown_special_tokens: those that stay in it nevertheless.
        sampler: overrides ``sampling`` (for processors that come ready-made).
        should_stop: asked after every token with the int64 ids ``[1, length]`` so far.
        observer: called with each prefill and outcome, before the tokens count as generated.
        namespace: whose text this is, such as a tenant or a user. A drafter with a memory drafts
            from text of the same namespace only.
        logprobs: likeliest tokens whose log probabilities are reported at each place, beside that
            of the committed token; 0: of that token alone, None: of none.
        speculate: whether tokens are drafted; if not, each step commits one token.
        grammar: that the text must have (needs a tokenizer); None: any text.
    """

    prompt: Sequence[int] | str
    max_new_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    eos: Collection[int] | None = None
    stop: tuple[str, ...] = ()
    sampler: Sampler | None = None
    should_stop: Callable[[torch.Tensor], bool] | None = None
    observer: Callable[[Prefill | Outcome], None] | None = None
    namespace: str = ""
    logprobs: int | None = None
    speculate: bool = True
    grammar: Grammar | None = None
    min_new_tokens: int = 0
    skip_special_tokens: bool = True
    shown_special_tokens: Collection[int] = ()

    @property
    def ids(self) -> Sequence[int]:
        """The prompt's token ids.

        Raises:
            DraftwoodError: the prompt is text, of which only an engine with a tokenizer makes ids.
        """
        if isinstance(self.prompt, str):
            raise DraftwoodError("the prompt is text: encode it first")
        return self.prompt

    @property
    def ends(self) -> Collection[int]:
        """The token ids that end the sequence, as far as the request names them."""
        return self.eos or ()


@dataclass(frozen=True)
class Completion:
    """A finished request: its tokens and text, the reason for its end, and its times in seconds.

    ``queued`` is the time before it began (NaN if it never did), ``ttft`` the time to the first
    token, ``seconds`` the time in all. ``cached_tokens`` are those of the prompt that were copied
    from another text and not computed. The text is empty without a tokenizer. If ``reason`` is
    ``"error"``, ``error`` names the request and the failure, its cause is the exception raised, and
    ``tokens`` are those committed before. ``logprobs`` has one entry for each token if they were
    asked for, else none.
    """

    tokens: tuple[int, ...]
    text: str
    reason: FinishReason
    tally: Tally
    prompt_tokens: int
    ttft: float
    seconds: float
    error: RequestFailed | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    queued: float = 0.0
    cached_tokens: int = 0

    def checked(self) -> "Completion":
        """This completion, unless the request failed.

        Raises:
            DraftwoodError: the error of the failed request.
        """
        if self.error is not None:
            raise self.error
        return self

    @property
    def tpot(self) -> float:
        """Seconds per token after the first (NaN if there is only one)."""
        after = len(self.tokens) - 1
        return (self.seconds - self.ttft) / after if after > 0 else float("nan")


@dataclass(frozen=True)
class Delta:
    """New tokens of a request, their text, and the source that drafted each.

    ``sources`` is empty text for the target's own tokens. ``logprobs`` is empty if they were not
    asked for.
    """

    request_id: int
    tokens: tuple[int, ...]
    sources: tuple[str, ...]
    pieces: tuple[str, ...]
    logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def accepted(self) -> tuple[bool, ...]:
        """Whether each token was drafted."""
        return tuple(map(bool, self.sources))


@dataclass(frozen=True, eq=False)
class Stepped:
    """Statistics of a request's step."""

    request_id: int
    stats: StepStats


@dataclass(frozen=True)
class Finished:
    """A request has ended."""

    request_id: int
    completion: Completion


Event = Delta | Stepped | Finished


def prepared(
    request: Request, tokenizer: "PreTrainedTokenizerBase | None", eos: frozenset[int]
) -> Request:
    """The request with its prompt as token ids, what ends it decided, and its types checked.

    Args:
        request: as it was made.
        tokenizer: encodes a prompt that is text.
        eos: ends the sequence if the request names none.

    Raises:
        DraftwoodError: something is of a wrong type, or text has no tokenizer.
    """
    if not isinstance(request, Request):
        raise DraftwoodError(
            f"an engine takes requests, such as draftwood.Request(prompt, max_new_tokens=64), but "
            f"this is {type(request).__name__}"
        )
    prompt: Any = request.prompt
    if isinstance(prompt, str):
        if tokenizer is None:
            raise DraftwoodError(
                "a prompt that is text needs a tokenizer: give the engine one, or token ids"
            )
        prompt = tokenizer(prompt)["input_ids"]
    if not isinstance(request.namespace, str):
        raise DraftwoodError(f"namespace is {request.namespace!r}: give text")
    for name in ("speculate", "skip_special_tokens"):
        if not isinstance(getattr(request, name), bool):
            raise DraftwoodError(f"{name} is {getattr(request, name)!r}: give True or False")
    for name in ("should_stop", "observer"):
        function = getattr(request, name)
        if function is not None and not callable(function):
            raise DraftwoodError(f"{name} is {function!r}: give a function, or None")
    if request.sampler is not None and not isinstance(request.sampler, Sampler):
        raise DraftwoodError(
            f"sampler is {request.sampler!r}: give a draftwood.sampling.sampler.Sampler, or None"
        )
    if not isinstance(request.sampling, SamplingParams):
        raise DraftwoodError(
            f"sampling is {request.sampling!r}: give draftwood.SamplingParams(temperature=...)"
        )
    ends: Any = eos if request.eos is None else request.eos
    stop: Any = request.stop
    stop = (stop,) if isinstance(stop, str) else stop
    if not isinstance(stop, Iterable) or not all(isinstance(text, str) for text in stop):
        raise DraftwoodError(f"stop is {stop!r}: give strings")
    ends = integers("eos", [ends] if isinstance(ends, Integral) else ends)
    if any(abs(token) > _LARGEST_ID for token in ends):
        raise DraftwoodError(f"eos holds {max(ends, key=abs)}, which is no token id")
    logprobs = request.logprobs
    return replace(
        request,
        logprobs=None if logprobs is None else integer("logprobs", logprobs),
        prompt=integers("the prompt", prompt),
        max_new_tokens=integer("max_new_tokens", request.max_new_tokens),
        min_new_tokens=integer("min_new_tokens", request.min_new_tokens),
        eos=frozenset(ends),
        stop=tuple(stop),
    )


def checked(events: Iterable[Event]) -> Iterator[Event]:
    """The same events, until a request has failed.

    Raises:
        DraftwoodError: the error of the failed request.
    """
    for event in events:
        if isinstance(event, Finished):
            event.completion.checked()
        yield event


def failure(number: int, cause: Exception) -> RequestFailed:
    """The error of a completion, caused by an exception."""
    text = f"{type(cause).__name__}: {cause}".removesuffix(": ")
    if isinstance(cause, DraftwoodError):
        text = str(cause)
    found = RequestFailed(f"request {number} failed: {text}")
    found.reason = text
    found.__cause__ = cause
    return found


def admit(request: Request, info: TargetInfo, *, text: bool) -> int:
    """Most tokens the request can generate on a target; ``text``: whether there is a tokenizer.

    Raises:
        DraftwoodError: the prompt is empty, holds an unknown id or exceeds the context, or a
            limit, a sampling setting or a stop string cannot be honoured.
    """
    if not len(request.ids):
        raise DraftwoodError("the prompt is empty: give at least one token")
    if not all(0 <= token < info.vocab_size for token in request.ids):
        raise DraftwoodError(
            f"the prompt holds token ids outside 0..{info.vocab_size - 1}: encode it with the "
            "model's own tokenizer"
        )
    if request.max_new_tokens < 1:
        raise DraftwoodError(f"max_new_tokens is {request.max_new_tokens}: ask for at least 1")
    if request.min_new_tokens and request.sampler is not None:
        raise DraftwoodError(
            "min_new_tokens and a sampler cannot be combined: give the sampler a processor that "
            "withholds the end tokens"
        )
    if not 0 <= request.min_new_tokens <= request.max_new_tokens:
        raise DraftwoodError(
            f"min_new_tokens is {request.min_new_tokens}: give 0 to {request.max_new_tokens}, "
            "which is max_new_tokens"
        )
    free = info.context_limit - len(request.ids)
    if free < 1:
        raise DraftwoodError(
            f"the prompt has {len(request.ids)} tokens and the model's context holds "
            f"{info.context_limit}: shorten the prompt"
        )
    if request.stop and not text:
        raise DraftwoodError("stop strings need a tokenizer: give the engine one")
    if request.logprobs is not None and not 0 <= request.logprobs <= info.vocab_size:
        raise DraftwoodError(
            f"logprobs is {request.logprobs}: ask for 0 to {info.vocab_size} tokens, the model's "
            "vocabulary"
        )
    request.sampling.validate(info.vocab_size)
    return min(request.max_new_tokens, free)
