"""What goes into the engine and what comes out: requests, streaming events, completions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

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
    """

    prompt: Sequence[int]
    max_new_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    eos: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    sampler: Sampler | None = None
    should_stop: Callable[[torch.Tensor], bool] | None = None


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
