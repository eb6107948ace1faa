"""Log probabilities are possible ones, and those of the reference at the same place.

Greedy answers of all prompts are compared token by token as long as their tokens are the same, and
the first tokens of a few samples: the log probabilities of the tokens, and those of the likeliest
ones that both sides list there.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from draftwood.lab.endpoint.answer import Choice, Token
from draftwood.lab.endpoint.checks._common import Check, Cost, Size, attempted, compared
from draftwood.lab.endpoint.comparison import GREEDY_TOKENS, Comparison, Side
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.lab.endpoint.result import Asked, Result
from draftwood.lab.endpoint.server import Server

NAME = "logprobs"
SAMPLES, SAMPLED_TOKENS = 8, 16

_SLACK = 1e-3
"""Most by which probabilities may exceed 1, for the digits that servers report."""


def _cost(size: Size) -> Cost:
    greedy, sampled = size.prompts, SAMPLES * size.sides
    return Cost(greedy + sampled, greedy * GREEDY_TOKENS + sampled * SAMPLED_TOKENS)


def _run(run: Comparison) -> Iterator[Result]:
    if run.tops(run.endpoint) is None:
        yield Result(NAME, "", "not checked", "not supported: the server reports none")
        return
    answers: dict[Prompt, Choice] = {}
    for prompt in run.prompts:
        yield attempted(NAME, f"text of {prompt.name}", partial(_text, run, prompt, answers))
    yield attempted(NAME, "greedy", partial(_greedy, run, answers))
    yield attempted(NAME, "sampled", partial(_sampled, run))


def _text(run: Comparison, prompt: Prompt, answers: dict[Prompt, Choice]) -> Result:
    """Asking for log probabilities does not change the text."""
    found = run.greedy(run.endpoint, prompt, logprobs=True)
    answers[prompt] = found
    requests = run.requests(prompt, GREEDY_TOKENS, tops=run.endpoint.abilities.tops)
    difference = run.judge(run.expected(prompt), found)
    return compared(NAME, f"text of {prompt.name}", difference, "as the reference's", requests)


def _greedy(run: Comparison, answers: dict[Prompt, Choice]) -> Result:
    faults: list[str] = []
    others: list[str] = []
    pairs: list[tuple[float, float]] = []
    beside: list[tuple[float, str]] = []
    for prompt, found in answers.items():
        expected = run.expected(prompt)
        for choice, listed in ((found, faults), (expected, others)):
            every = (*faults_of(choice.tokens), *not_best(choice.tokens, run))
            listed += [f"{prompt.name}, {fault}" for fault in every]
        pairs += list(same_tokens(expected.tokens, found.tokens))
        beside += [(gap, f"{prompt.name}, {at}") for gap, at in same_lists([expected], [found])]
    request = run.requests(run.longest, GREEDY_TOKENS, tops=run.endpoint.abilities.tops)
    return _compared("greedy", faults, others, pairs, beside, run, request)


def _sampled(run: Comparison) -> Result:
    """The first tokens of samples: those whose text before is the same on both sides."""
    sides: list[list[Choice]] = []
    for side in (run.endpoint, run.reference):
        sides.append(_samples(run, side) if run.tops(side) is not None else [])
    faults, others = (
        [
            f"sample {number}, {fault}"
            for number, found in enumerate(side)
            for fault in faults_of(found.tokens)
        ]
        for side in sides
    )
    known = {path: value for found in sides[1] for path, value in _paths(found.tokens)}
    pairs = [
        (known[path], token.logprob)
        for found in sides[0]
        for path, token in _own_paths(found.tokens)
        if path in known
    ]
    beside = list(same_lists(sides[1], sides[0]))
    tops = run.endpoint.abilities.tops
    request = run.requests(run.settings.sampled_prompt, SAMPLED_TOKENS, temperature=1.0, tops=tops)
    return _compared("sampled", faults, others, pairs, beside, run, request)


def _samples(run: Comparison, side: Side) -> list[Choice]:
    prompt, tops = run.settings.sampled_prompt, run.tops(side)
    # A server draws a seed for each request, and some take none.
    fields: list[dict[str, Any]] = [
        {"temperature": 1.0} if isinstance(side, Server) else {"temperature": 1.0, "seed": seed}
        for seed in range(SAMPLES)
    ]
    return [side.ask(prompt, SAMPLED_TOKENS, tops=tops, **each).first for each in fields]


def _own_paths(tokens: Sequence[Token]) -> Iterator[tuple[tuple[str, ...], Token]]:
    """Every token with the texts up to it, until one whose text does not tell it from others."""
    for number, token in enumerate(tokens):
        if not token.text or "\ufffd" in token.text:
            return
        yield tuple(each.text for each in tokens[: number + 1]), token


def _paths(tokens: Sequence[Token]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every log probability, also of tokens that were likely and not sampled."""
    for path, token in _own_paths(tokens):
        for text, logprob in (*token.top, (token.text, token.logprob)):
            yield (*path[:-1], text), logprob


def _compared(
    subject: str,
    faults: Sequence[str],
    others: Sequence[str],
    pairs: Sequence[tuple[float, float]],
    beside: Sequence[tuple[float, str]],
    run: Comparison,
    requests: tuple[Asked, ...],
) -> Result:
    """The result for some answers.

    Args:
        subject: which answers.
        faults: impossible values of the endpoint.
        others: of the reference.
        pairs: log probabilities of both at the same places.
        beside: differences of the likeliest tokens there, each with its place in words.
        run: has the tolerance.
        requests: that show a failure.
    """
    if faults:
        text = f"{len(faults)} impossible values, the first: {faults[0]}"
        text += "; the reference has such values as well" if others else ""
        return Result(NAME, subject, "failed", text, shared=bool(others), requests=requests)
    if not pairs:
        return Result(NAME, subject, "passed", "possible values; none to compare with")
    largest = max(abs(a - b) for a, b in pairs)
    farthest, place = max(beside, default=(0.0, ""))
    limit = run.settings.tolerance
    figures = {
        "tokens": float(len(pairs)),
        "largest_difference": largest,
        "listed": float(len(beside)),
        "largest_listed_difference": farthest,
    }
    words = f"{len(pairs)} tokens, at most {largest:.2g} from the reference's"
    if beside:
        words += f"; {len(beside)} entries of likeliest tokens, at most {farthest:.2g}"
    if max(largest, farthest) > limit.value:
        text = f"{words}, which is above {limit}"
        text += f"; the worst: {place}" if farthest > limit.value else ""
        return Result(NAME, subject, "failed", text, figures=figures, requests=requests)
    return Result(NAME, subject, "passed", words, figures=figures)


def same_tokens(expected: Sequence[Token], found: Sequence[Token]) -> Iterator[tuple[float, float]]:
    """Pairs of log probabilities up to the first token that differs."""
    for a, b in zip(expected, found, strict=False):
        if a.text != b.text:
            return
        yield a.logprob, b.logprob


def same_lists(expected: Iterable[Choice], found: Iterable[Choice]) -> Iterator[tuple[float, str]]:
    """Differences of the likeliest tokens that both sides list after the same tokens.

    Lists may end at other tokens, where two are nearly equally likely.

    Args:
        expected: the reference's answers to one prompt.
        found: the answers that are judged.

    Yields:
        The difference, and in words which token at which place has it.
    """
    known = {place: listed for each in expected for place, listed in _lists(each)}
    for choice in found:
        for place, listed in _lists(choice):
            there = known.get(place, {})
            for text in listed.keys() & there.keys():
                at = f"token {len(place[1])}: {text!r} has {listed[text]:.3g}"
                words = f"{at}, the reference's list {there[text]:.3g}"
                yield abs(listed[text] - there[text]), words


def _lists(choice: Choice) -> Iterator[tuple[tuple[bool, tuple[str, ...]], Mapping[str, float]]]:
    """The likeliest tokens by what is before them; of equal texts in a list, none.

    Sides that spell tokens differently, such as without their spaces, have no place in common.
    """
    spelt = all(
        choice.text.startswith(token.text, token.start)
        for token in choice.tokens
        if token.start < len(choice.text) and "\ufffd" not in token.text
    )
    most = max((len(token.top) for token in choice.tokens), default=0)
    for path, token in _own_paths(choice.tokens):
        # Columns have one token of each text: in a shorter one, it is not known which.
        if token.ordered or len(token.top) == most:
            times = Counter(text for text, _ in token.top)
            single = {text for text, count in times.items() if count == 1}
            yield (
                (spelt, path[:-1]),
                {
                    text: logprob
                    for text, logprob in token.top
                    if text in single and math.isfinite(logprob) and "\ufffd" not in text
                },
            )


def faults_of(tokens: Sequence[Token]) -> Iterator[str]:
    """What is impossible among log probabilities."""
    most = max((len(token.top) for token in tokens), default=0)
    for number, token in enumerate(tokens):
        values = [logprob for _, logprob in token.top]
        if not token.logprob <= _SLACK:
            yield f"token {number}: log probability {token.logprob:.3g} is above 0"
        # Tokens of one spelling share a name, so that the sum can only be too small.
        total = sum(map(math.exp, values))
        if total > 1 + _SLACK:
            yield f"token {number}: the likeliest tokens have probability {total:.4g}"
        # A shorter list had tokens of one spelling, of which it has one, at any of their places.
        whole = token.ordered and len(values) == most
        if whole and any(a < b for a, b in pairwise(values)):
            yield f"token {number}: the likeliest tokens are not in order"
        if token.text in dict(token.top):
            listed = dict(token.top)[token.text]
            # The list may name another token of the same spelling, which is likelier then.
            if listed < token.logprob - _SLACK:
                yield f"token {number}: {token.logprob:.3g}, but {listed:.3g} in its own list"


def not_best(tokens: Sequence[Token], run: Comparison) -> Iterator[str]:
    """Greedy tokens that are not the likeliest ones."""
    for number, token in enumerate(tokens):
        best = max((logprob for _, logprob in token.top), default=token.logprob)
        if best - token.logprob > run.settings.tolerance.value:
            yield f"token {number}: {token.text!r} is greedy, and another is likelier by " + (
                f"{best - token.logprob:.2g}"
            )


CHECK = Check(NAME, _cost, _run)
