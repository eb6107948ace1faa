"""transformers' own ``generate`` on an untouched model: what a user has without Draftwood.

The default cache, no compilation, no packing. The model's generation config is replaced by the
run's settings, so that penalties or limits a checkpoint brings along do not apply on one side only.
A group of prompts is padded on the left and comes back as a whole, so all of its requests share
one end: their ``seconds`` are the group's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from draftwood.bench.measure import Answer, Decode
from draftwood.models import Loaded
from draftwood.requests import Completion, FinishReason, Request
from draftwood.stats import Tally


@dataclass(frozen=True)
class HuggingFace:
    """Plain ``generate``; it has no settings."""

    def enter(self, stock: Loaded) -> "Generating":
        """Plain decoding on the model."""
        return Generating(stock.model, {})


class Generating:
    """Calls ``generate`` with fixed further arguments.

    Args:
        model: never attached; its generation config is overwritten.
        extra: arguments of ``generate`` beyond those that every request decides.
    """

    def __init__(self, model: Any, extra: dict[str, Any]) -> None:
        self._model = model
        self._extra = extra

    def begin(self, batch: int) -> Decode:  # noqa: ARG002
        """Nothing is kept between calls, so there is nothing to prepare."""
        return self.decode

    def decode(self, requests: Sequence[Request]) -> list[Answer]:
        """One call of ``generate``; the settings of the first request hold for all."""
        started = perf_counter()
        first = requests[0]
        self._model.generation_config = _config(first)
        if first.sampling.temperature > 0:
            torch.manual_seed(first.sampling.seed)
        width = max(len(request.prompt) for request in requests)
        padded = [[0] * (width - len(r.prompt)) + list(r.prompt) for r in requests]
        kept = [[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in requests]
        clock = _FirstToken()
        output = self._model.generate(
            input_ids=torch.tensor(padded, device=self._model.device),
            attention_mask=torch.tensor(kept, device=self._model.device),
            stopping_criteria=StoppingCriteriaList([clock]),
            **self._extra,
        )
        rows = output[:, width:].tolist()
        seconds = perf_counter() - started
        ttft = (clock.at or started) - started
        return [
            _answer(request, row, ttft, seconds)
            for request, row in zip(requests, rows, strict=True)
        ]


class _FirstToken(StoppingCriteria):
    """Stops nothing; notes when the first token was there."""

    def __init__(self) -> None:
        self.at: float | None = None

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        if self.at is None:
            input_ids[:, -1].tolist()  # a GPU may still be computing it
            self.at = perf_counter()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def _config(request: Request) -> GenerationConfig:
    sampling = request.sampling
    drawn: dict[str, Any] = {}
    if sampling.temperature > 0:
        drawn = {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
        }
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=request.max_new_tokens,
        do_sample=sampling.temperature > 0,
        eos_token_id=sorted(request.eos) or None,
        pad_token_id=min(request.eos, default=0),
        **drawn,
    )


def _answer(request: Request, row: Sequence[int], ttft: float, seconds: float) -> Answer:
    end = next((i + 1 for i, token in enumerate(row) if token in request.eos), len(row))
    tokens = tuple(row[:end])
    reason: FinishReason = "eos" if tokens and tokens[-1] in request.eos else "length"
    # Every forward after the prefill yields one token.
    tally = Tally(steps=len(tokens) - 1, committed=len(tokens) - 1)
    return Answer(Completion(tokens, "", reason, tally, len(request.prompt), ttft, seconds))


PEER = HuggingFace
