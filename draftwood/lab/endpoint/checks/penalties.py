"""Greedy texts with penalties are the reference's."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from draftwood.lab.endpoint.checks._common import Check, Cost, Size, attempted, compared
from draftwood.lab.endpoint.comparison import GREEDY_TOKENS, Comparison
from draftwood.lab.endpoint.divergence import Divergence, Score
from draftwood.lab.endpoint.penalties import additive, repetition
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.lab.endpoint.result import Result

NAME = "penalties"
PENALTIES: Mapping[str, float] = {
    "repetition_penalty": 1.3,
    "presence_penalty": 1.5,
    "frequency_penalty": 1.0,
}

_PROMPTS = 2
"""Prompts that are asked with penalties."""


def _cost(size: Size) -> Cost:
    requests = len(PENALTIES) * min(size.prompts, _PROMPTS) * size.sides
    return Cost(requests, requests * GREEDY_TOKENS)


def _run(run: Comparison) -> Iterator[Result]:
    for name in PENALTIES:
        for prompt in _repetitive(run):
            subject = f"{name} of {prompt.name}"
            yield attempted(NAME, subject, partial(_one, run, prompt, name, subject))


def _repetitive(run: Comparison) -> list[Prompt]:
    """The prompts whose answers repeat themselves most: penalties change these."""

    def share(prompt: Prompt) -> float:
        words = run.greedy(run.endpoint, prompt).text.split()
        return len(set(words)) / (len(words) or 1)

    return sorted(run.answered, key=share)[:_PROMPTS]


def _one(run: Comparison, prompt: Prompt, name: str, subject: str) -> Result:
    fields: dict[str, Any] = {name: PENALTIES[name]}
    found = run.endpoint.ask(prompt, GREEDY_TOKENS, **fields).first
    expected = run.ask_reference(prompt, GREEDY_TOKENS, **fields).first
    requests = run.requests(prompt, GREEDY_TOKENS, **fields)
    changes = expected.text != run.expected(prompt).text
    if changes and found.text == run.greedy(run.endpoint, prompt).text != expected.text:
        text = "the penalty changes nothing here, and changes the reference's text"
        return Result(NAME, subject, "failed", text, requests=requests)
    count = len(expected.tokens) or len(expected.text.split())
    unit = "tokens" if expected.tokens else "words"
    words = f"{count} {unit}, all as the reference's"
    if not changes:
        words += "; but the penalty changed nothing, so this shows little"
    difference = run.judge(expected, found, score=_score(prompt, name))
    if difference is not None and difference.gap is None:
        difference = _as_without(run, prompt, difference)
    return compared(NAME, subject, difference, words, requests)


def _as_without(run: Comparison, prompt: Prompt, found: Divergence) -> Divergence:
    """A difference with the gap that it has without the penalty, if it is there, too."""
    plain = run.judge(run.expected(prompt), run.greedy(run.endpoint, prompt))
    same = ("token", "expected", "found")
    if plain is None or any(getattr(plain, name) != getattr(found, name) for name in same):
        return found
    return replace(found, gap=plain.gap, at_least=plain.at_least)


def _score(prompt: Prompt, name: str) -> Score:
    value = PENALTIES[name]
    if name == "repetition_penalty":
        return repetition(prompt.text)
    presence, frequency = (value, 0.0) if name == "presence_penalty" else (0.0, value)
    return additive(prompt.text, presence, frequency)


CHECK = Check(NAME, _cost, _run)
