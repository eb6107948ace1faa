"""Contenders that call transformers' ``generate`` on an untouched model.

They use the default cache, without compilation. The run's settings replace the model's generation
config, so that a checkpoint's penalties or limits do not apply to peers only.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from draftwood.engine.request import Completion, FinishReason, Request
from draftwood.engine.stats import Tally
from draftwood.lab.bench.measure import Answer, Decode
from draftwood.lab.bench.trial import tried


@dataclass(frozen=True, eq=False)
class Generate:
    """Decodes a group in one call, padded on the left; all of its requests end at once.

    With ``extra``, which is for assisted ``generate``, it decodes one request after another, and a
    request's seconds include the wait for those before it.

    Args:
        model: an untouched model; its generation config is overwritten.
        extra: further arguments of ``generate``.
    """

    model: Any
    extra: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, batch: int) -> Decode:  # noqa: ARG002
        """The decoder, which is stateless."""
        return self.decode

    def decode(self, requests: Sequence[Request]) -> list[Answer]:
        """Call ``generate`` with the settings of each call's first request."""
        asked = perf_counter()
        calls = [[request] for request in requests] if self.extra else [requests]
        return [
            answer for call in calls for answer in generate(self.model, call, asked, self.extra)
        ]

    def tried(self) -> "Generate":
        """Decode a few tokens, then return ``self``.

        Raises:
            DraftwoodError: transformers cannot decode this model; the message has its reason.
        """
        refusal = (
            f"assisted generate does not work with {type(self.model).__name__} in the installed "
            "transformers, leave this peer out"
        )
        return tried(self, refusal)


def generate(
    model: Any, requests: Sequence[Request], asked: float, extra: Mapping[str, Any]
) -> list[Answer]:
    """Call ``generate`` for all requests, with the settings of the first one.

    Args:
        model: its generation config is overwritten.
        requests: requests of a batch, padded on the left.
        asked: ``perf_counter()`` at the start of the group.
        extra: further arguments of ``generate``.
    """
    first = requests[0]
    model.generation_config = _config(first)
    if first.sampling.temperature > 0:
        torch.manual_seed(first.sampling.seed)
    width = max(len(request.ids) for request in requests)
    padded = [[0] * (width - len(r.prompt)) + list(r.prompt) for r in requests]
    mask = [[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in requests]
    clock = _Clock(width)
    output = model.generate(
        input_ids=torch.tensor(padded, device=model.device),
        attention_mask=torch.tensor(mask, device=model.device),
        stopping_criteria=StoppingCriteriaList([clock]),
        **extra,
    )
    rows = output[:, width:].tolist()
    ended = perf_counter()
    return [
        _answer(request, row, clock, asked, ended)
        for request, row in zip(requests, rows, strict=True)
    ]


class _Clock(StoppingCriteria):
    """Never stops; records the time of the first token and the length after each forward.

    Attributes:
        first: ``perf_counter()`` after the first forward; None before it.
        reached: tokens generated after each forward of the model, the prefill included.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self.first: float | None = None
        self.reached: list[int] = []

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        if self.first is None:
            input_ids[:, -1].tolist()  # waits for the GPU
            self.first = perf_counter()
        self.reached.append(input_ids.shape[1] - self._width)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def _config(request: Request) -> GenerationConfig:
    sampling = request.sampling
    drawn = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p")}
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=request.max_new_tokens,
        do_sample=sampling.temperature > 0,
        eos_token_id=sorted(request.ends) or None,
        pad_token_id=min(request.ends, default=0),
        **(drawn if sampling.temperature > 0 else {}),
    )


def _answer(
    request: Request, row: Sequence[int], clock: _Clock, asked: float, ended: float
) -> Answer:
    end = next((i + 1 for i, token in enumerate(row) if token in request.ends), len(row))
    tokens = tuple(row[:end])
    reason: FinishReason = "eos" if tokens and tokens[-1] in request.ends else "length"
    tally = _tally(clock.reached, len(tokens))
    ttft = (clock.first or asked) - asked
    return Answer(Completion(tokens, "", reason, tally, len(request.ids), ttft, ended - asked))


def _tally(reached: Sequence[int], tokens: int) -> Tally:
    """Forwards after the prefill until ``tokens`` tokens were there, and what they committed.

    How many tokens ``generate`` drafts, and how many of them it accepts, cannot be seen here.
    """
    if not reached:
        return Tally()
    return Tally(steps=bisect_left(reached, tokens), committed=max(0, tokens - reached[0]))
