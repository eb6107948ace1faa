"""``n``: as many answers as were asked for, the same ones if greedy, different ones if sampled."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from draftwood.lab.endpoint.checks._common import (
    OUTCOMES,
    Check,
    Cost,
    Size,
    attempted,
    blamed,
)
from draftwood.lab.endpoint.comparison import GREEDY_TOKENS, Comparison, asked
from draftwood.lab.endpoint.result import Result
from draftwood.lab.endpoint.server import Server

NAME = "n"
GREEDY, SAMPLED = 2, 3
SAMPLED_TOKENS = 32


def _cost(size: Size) -> Cost:
    tokens = GREEDY * GREEDY_TOKENS + SAMPLED * SAMPLED_TOKENS
    return Cost(2 * size.sides, tokens * size.sides)


def _run(run: Comparison) -> Iterator[Result]:
    def check(side: Server) -> Iterator[Result]:
        yield attempted(NAME, "greedy", partial(_greedy, run, side))
        yield attempted(NAME, "sampled", partial(_sampled, run, side))

    yield from blamed(run, check)


def _greedy(run: Comparison, side: Server) -> Result:
    prompt = run.longest
    answer = side.ask(prompt, GREEDY_TOKENS, n=GREEDY)
    request = asked(side, prompt, GREEDY_TOKENS, n=GREEDY)
    if answer.indices != tuple(range(GREEDY)):
        return Result(
            NAME, "greedy", "failed", _numbers(GREEDY, answer.indices), requests=(request,)
        )
    expected = run.expected(prompt)
    for number, choice in enumerate(answer.choices):
        found = run.judge(expected, choice)
        if found is not None and found.cause != "rounding":
            text = f"choice {number}: {found}"
            return Result(NAME, "greedy", OUTCOMES[found.cause], text, found, requests=(request,))
    return Result(NAME, "greedy", "passed", f"{GREEDY} choices, both as the reference's text")


def _sampled(run: Comparison, side: Server) -> Result:
    prompt = run.settings.sampled_prompt
    fields: dict[str, Any] = {"n": SAMPLED, "temperature": 1.0}
    answer = side.ask(prompt, SAMPLED_TOKENS, **fields)
    request = asked(side, prompt, SAMPLED_TOKENS, **fields)
    if answer.indices != tuple(range(SAMPLED)):
        text = _numbers(SAMPLED, answer.indices)
        return Result(NAME, "sampled", "failed", text, requests=(request,))
    texts = {choice.text for choice in answer.choices}
    if len(texts) == 1:
        text = f"all {SAMPLED} choices are the same at temperature 1"
        return Result(NAME, "sampled", "failed", text, requests=(request,))
    text = f"{SAMPLED} choices, {len(texts)} different texts"
    return Result(NAME, "sampled", "passed", text)


def _numbers(wanted: int, indices: tuple[int, ...]) -> str:
    return f"n={wanted} gives choices with the indices {', '.join(map(str, indices))}"


CHECK = Check(NAME, _cost, _run)
