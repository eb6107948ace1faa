"""Greedy texts are the reference's."""

from collections.abc import Iterator
from functools import partial

from draftwood.lab.endpoint.checks._common import Check, Cost, Size, attempted, compared
from draftwood.lab.endpoint.comparison import GREEDY_TOKENS, Comparison
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.lab.endpoint.result import Result

NAME = "greedy"


def _cost(size: Size) -> Cost:
    requests = size.prompts * size.sides
    return Cost(requests, requests * GREEDY_TOKENS)


def _run(run: Comparison) -> Iterator[Result]:
    for prompt in run.prompts:
        yield attempted(NAME, prompt.name, partial(_one, run, prompt))


def _one(run: Comparison, prompt: Prompt) -> Result:
    found = run.greedy(run.endpoint, prompt)
    expected = run.expected(prompt)
    requests = run.requests(prompt, GREEDY_TOKENS)
    count = f"{len(expected.tokens)} tokens" if expected.tokens else f"{len(found.text)} characters"
    words = f"{count}, all as the reference's" if found.text else "both answers are empty"
    if found.text != expected.text and run.tops(run.endpoint) is not None:
        # Log probabilities name the other token, if they do not change the text.
        known = run.greedy(run.endpoint, prompt, logprobs=True)
        found = known if known.text == found.text else found
    result = compared(NAME, prompt.name, run.judge(expected, found), words, requests)
    reasons = (expected.reason, found.reason)
    if result.divergence is None and None not in reasons and len({*reasons}) > 1:
        text = f"the text is the reference's, but it ends by {reasons[1]!r}, not {reasons[0]!r}"
        return Result(NAME, prompt.name, "failed", text, requests=requests)
    return result


CHECK = Check(NAME, _cost, _run)
