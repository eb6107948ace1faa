"""One timed run: a group of prompts through one contender, turn by turn.

Only decoding is timed. Prompts are encoded and answers are decoded outside the clock, and the
garbage collector is off.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol, TypeAlias

import torch

from draftwood.engine.request import Completion, Request
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.acceptance import AcceptanceCounts, acceptance_of
from draftwood.lab.bench.contexts import Contexts, TurnContext
from draftwood.lab.bench.document import Excerpt
from draftwood.lab.bench.predictions import Predictions, predictions_of
from draftwood.lab.bench.prompts import Prompt
from draftwood.sampling.sampler import SamplingParams


@dataclass(frozen=True, eq=False)
class Answer:
    """A finished request and, for Draftwood's methods, its steps."""

    completion: Completion
    steps: tuple[StepStats, ...] = ()


Decode: TypeAlias = Callable[[Sequence[Request]], list[Answer]]
"""Decodes requests together; answers are in order. This call is timed."""


class Contender(Protocol):
    """A method, or another library, that answers requests."""

    def begin(self, batch: int) -> Decode:
        """Make a decoder for groups of ``batch`` requests, with empty drafters (untimed)."""
        ...


@dataclass(frozen=True)
class Decoding:
    """Longest answer, and the token ids that end an answer."""

    max_new_tokens: int
    eos: frozenset[int]


@dataclass(frozen=True)
class Item:
    """A prompt and the settings it is sampled with (each prompt has its own seed)."""

    prompt: Prompt
    sampling: SamplingParams


@dataclass(frozen=True, eq=False)
class Turn:
    """One answered turn.

    Attributes:
        context: the continued context.
        completion: the answer.
        overhead: seconds of each step outside the target's forward.
        other: seconds of the group's decoding that no phase of a step covers, this turn's share.
        group_seconds: wall-clock seconds until the whole group had this turn answered.
        acceptance: counts of drafted and accepted nodes.
        forecasts: predictions of the steps, with their outcome.
        excerpt: the answer's first steps, for a few first turns only.
    """

    context: TurnContext
    completion: Completion
    overhead: tuple[float, ...]
    other: float
    group_seconds: float
    acceptance: AcceptanceCounts
    forecasts: Predictions = field(default_factory=Predictions)
    excerpt: Excerpt | None = None


def decode_group(
    contender: Contender,
    items: Sequence[Item],
    contexts: Contexts,
    decoding: Decoding,
    watch: Callable[[Prompt, int, Sequence[StepStats]], None] | None = None,
    quote: Callable[..., Excerpt | None] | None = None,
    histories: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> list[tuple[Turn, ...]]:
    """Decode all turns of a group of prompts together; returns the turns of each prompt.

    The context of a later turn has the answers of the prompt's history (token ids by the prompt's
    id), or the contender's own if there is none.

    A contender begins once per group, so that its state does not outlive the group. Statistics and
    excerpts (of first turns) are not timed.
    """
    decode = contender.begin(len(items))
    turns: list[list[Turn]] = [[] for _ in items]
    for number in range(max(len(item.prompt.turns) for item in items)):
        active = [i for i, item in enumerate(items) if len(item.prompt.turns) > number]
        given = [
            contexts.after(
                items[i].prompt,
                (histories or {}).get(items[i].prompt.id, [t.completion.tokens for t in turns[i]])[
                    :number
                ],
            )
            for i in active
        ]
        requests = [
            Request(
                prompt=context.ids,
                max_new_tokens=decoding.max_new_tokens,
                sampling=items[i].sampling,
                eos=decoding.eos,
            )
            for i, context in zip(active, given, strict=True)
        ]
        answers, seconds = timed(decode, requests)
        other = _uncovered(answers, seconds)
        for i, context, answer in zip(active, given, answers, strict=True):
            prompt, completion = items[i].prompt, answer.completion
            refuse_failed(prompt, number, completion)
            quoted = None
            if quote is not None and number == 0:
                quoted = quote(prompt, context.ids, completion.tokens, answer.steps)
            turns[i].append(
                Turn(
                    context=context,
                    completion=completion,
                    overhead=tuple(s.times.total - s.times.target for s in answer.steps),
                    other=other,
                    group_seconds=seconds,
                    acceptance=acceptance_of(answer.steps),
                    forecasts=predictions_of(answer.steps),
                    excerpt=quoted,
                )
            )
            if watch is not None:
                watch(prompt, number, answer.steps)
    return [tuple(found) for found in turns]


def refuse_failed(prompt: Prompt, turn: int, completion: Completion) -> None:
    """Refuse an answer that ended with an error.

    Raises:
        DraftwoodError: it did; the message names the prompt and the turn, which is counted from 0.
    """
    if completion.error is not None:
        raise DraftwoodError(
            f"prompt {prompt.id!r} failed in turn {turn + 1}: {completion.error}"
        ) from completion.error


def timed(decode: Decode, requests: Sequence[Request]) -> tuple[list[Answer], float]:
    """The answers, and the wall-clock seconds until all of them were finished."""
    with _without_gc():
        started = perf_counter()
        answers = decode(requests)
        _wait()
        return answers, perf_counter() - started


@contextmanager
def _without_gc() -> Iterator[None]:
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    _wait()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _wait() -> None:
    """Wait for all devices: which of them decodes, a contender may choose."""
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)


def _uncovered(answers: Sequence[Answer], seconds: float) -> float:
    """Seconds after prefill and outside all phases, shared equally among the answers."""
    covered = sum(sum(a.completion.tally.seconds.values()) for a in answers)
    if not covered:
        return 0.0
    prefill = max(a.completion.ttft for a in answers)
    return max(0.0, seconds - prefill - covered) / len(answers)
