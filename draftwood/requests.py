"""What goes into the engine and what comes out: requests, streaming events, completions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Outcome, Prefill, TargetInfo
from draftwood.sampling import Sampler, SamplingParams
from draftwood.stats import StepStats, Tally

FinishReason = Literal["eos", "stop", "length", "context", "cancelled"]


@dataclass(frozen=True, eq=False)
class Request:
    """One sequence to generate.

    Attributes:
        prompt: token ids, at least one.
        max_new_tokens: most tokens to generate.
        sampling: how p is formed from the logits, and the seed.
        eos: token ids that end the sequence; the one met is the last token.
        stop: strings that end the sequence and are left out of its text (needs a tokenizer).
        sampler: overrides ``sampling`` (for processors that come ready-made).
        should_stop: asked after every token with the int64 ids ``[1, length]`` so far.
        observer: told what the drafters are told, before the tokens count as generated.
    """

    prompt: Sequence[int]
    max_new_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    eos: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    sampler: Sampler | None = None
    should_stop: Callable[[torch.Tensor], bool] | None = None
    observer: Callable[[Prefill | Outcome], None] | None = None


@dataclass(frozen=True)
class Completion:
    """A finished request: token ids, their text (if there is a tokenizer), why it ended, and times
    in seconds: ``ttft`` to the first token, ``seconds`` in all."""

    tokens: tuple[int, ...]
    text: str
    reason: FinishReason
    tally: Tally
    prompt_tokens: int
    ttft: float
    seconds: float

    @property
    def tpot(self) -> float:
        """Seconds per token after the first (NaN if there is only one)."""
        after = len(self.tokens) - 1
        return (self.seconds - self.ttft) / after if after > 0 else float("nan")


@dataclass(frozen=True)
class Delta:
    """New tokens of a request; ``accepted`` tells drafted tokens from the target's own."""

    request_id: int
    tokens: tuple[int, ...]
    accepted: tuple[bool, ...]
    pieces: tuple[str, ...]


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


def admit(request: Request, info: TargetInfo, *, text: bool) -> int:
    """Most tokens the request can generate on a target; ``text``: whether there is a tokenizer.

    Raises:
        DraftwoodError: the prompt is empty, holds an unknown id or exceeds the context, or a
            limit, a sampling setting or a stop string cannot be honoured.
    """
    if not len(request.prompt):
        raise DraftwoodError("the prompt is empty: give at least one token")
    if not all(0 <= token < info.vocab_size for token in request.prompt):
        raise DraftwoodError(f"the prompt holds token ids outside 0..{info.vocab_size - 1}")
    if request.max_new_tokens < 1:
        raise DraftwoodError(f"max_new_tokens is {request.max_new_tokens}: ask for at least 1")
    free = info.context_limit - len(request.prompt)
    if free < 1:
        raise DraftwoodError(
            f"the prompt has {len(request.prompt)} tokens and the model's context holds "
            f"{info.context_limit}: shorten the prompt"
        )
    if request.stop and not text:
        raise DraftwoodError("stop strings need a tokenizer: give the engine one")
    request.sampling.validate(info.vocab_size)
    return min(request.max_new_tokens, free)
