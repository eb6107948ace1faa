"""Stop strings and limits end a text where they should."""

from collections.abc import Iterator
from functools import partial

from draftwood.lab.endpoint.checks._common import (
    OUTCOMES,
    Check,
    Cost,
    Size,
    attempted,
    blamed,
)
from draftwood.lab.endpoint.comparison import GREEDY_TOKENS, Comparison, asked
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.lab.endpoint.result import Result
from draftwood.lab.endpoint.server import Server

NAME = "ends"
LIMITS = (1, 5, 17)
STOPS = (3, 8)
"""Characters of the stop strings; the longer one is of several tokens."""


def _cost(size: Size) -> Cost:
    tokens = sum(LIMITS) + len(STOPS) * GREEDY_TOKENS
    return Cost((len(LIMITS) + len(STOPS)) * size.sides, tokens * size.sides)


def _run(run: Comparison) -> Iterator[Result]:
    def check(side: Server) -> Iterator[Result]:
        for length in STOPS:
            subject = f"a stop string of {length} characters"
            yield attempted(NAME, subject, partial(_stop, run, side, length, subject))
        for limit in LIMITS:
            subject = f"max_tokens={limit}"
            yield attempted(NAME, subject, partial(_limit, run, side, limit, subject))

    yield from blamed(run, check)


def _stop(run: Comparison, side: Server, length: int, subject: str) -> Result:
    found = _place(run, side, length)
    if found is None:
        return Result(NAME, subject, "not checked", "the greedy answers are too short")
    prompt, whole, stop = found
    answer = side.ask(prompt, GREEDY_TOKENS, stop=[stop]).first
    expected = whole[: whole.index(stop)]
    request = asked(side, prompt, GREEDY_TOKENS, stop=[stop])

    def result(fault: str) -> Result:
        return Result(NAME, subject, "failed", fault, requests=(request,))

    if stop in answer.text:
        return result(f"the text has the stop string {stop!r}")
    if answer.text == expected:
        if answer.reason not in (None, "stop"):
            return result(f"the text stops before {stop!r}, but ends by {answer.reason!r}")
        return Result(NAME, subject, "passed", f"the text ends before {stop!r}")
    if answer.text.startswith(expected):
        return result(f"the text goes on after the place of {stop!r}: {answer.text[-30:]!r}")
    if expected.startswith(answer.text):
        missing = len(expected) - len(answer.text)
        return result(f"the text ends {missing} characters before the stop string {stop!r}")
    text = "the text is another one than without the stop string, before it would end"
    return Result(NAME, subject, "undecided", text, requests=(request,))


def _place(run: Comparison, side: Server, length: int) -> tuple[Prompt, str, str] | None:
    """A prompt whose greedy answer has a stop string in its middle, the answer, and the string."""
    for prompt in run.answered:
        text = run.greedy(side, prompt).text
        stop = stop_string(text, length)
        if stop is not None:
            return prompt, text, stop
    return None


def stop_string(text: str, length: int) -> str | None:
    """A part of a text that occurs in its middle first; None: there is none."""
    for place in range(max(4, len(text) // 4), len(text) - length):
        found = text[place : place + length]
        if text.index(found) == place and found.strip() and "\ufffd" not in found:
            return found
    return None


def _limit(run: Comparison, side: Server, limit: int, subject: str) -> Result:
    prompt = run.longest
    answer = side.ask(prompt, limit)
    found = answer.first
    request = asked(side, prompt, limit)
    if answer.generated not in (None, limit) or found.reason not in (None, "length"):
        whole = run.greedy(side, prompt)
        if found.reason == "stop" and found.text == whole.text:
            return Result(NAME, subject, "not checked", "the greedy answer is too short")
        text = f"{answer.generated} tokens were generated, and the end is {found.reason!r}"
        return Result(NAME, subject, "failed", text, requests=(request,))
    difference = run.judge(run.expected(prompt), found, cut=True)
    if difference is not None and difference.cause != "rounding":
        text = f"with this limit the text is another one: {difference}"
        outcome = OUTCOMES[difference.cause]
        return Result(NAME, subject, outcome, text, difference, requests=(request,))
    count = "as the text shows" if answer.generated is None else f"{answer.generated} generated"
    return Result(NAME, subject, "passed", count)


CHECK = Check(NAME, _cost, _run)
