"""``logit_bias``: a banned token never occurs, a forced one is the only one."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from draftwood.lab.endpoint.checks._common import (
    Check,
    Cost,
    Size,
    attempted,
    blamed,
    compared,
)
from draftwood.lab.endpoint.comparison import Comparison, asked
from draftwood.lab.endpoint.result import Result
from draftwood.lab.endpoint.server import Server

NAME = "logit_bias"
TOKENS = 32
FORCED = 4

_TRIED = 3
"""Tokens of which one has to have an id."""

_MOST = 100.0
"""The API's largest bias."""


def _cost(size: Size) -> Cost:
    ids = 2 * size.sides * _TRIED  # requests that generate nothing
    return Cost(ids + 3 * size.sides, (2 * TOKENS + FORCED) * size.sides)


def _run(run: Comparison) -> Iterator[Result]:
    if run.tops(run.endpoint) is None:
        text = "not supported: the server reports no tokens (logprobs)"
        yield Result(NAME, "", "not checked", text)
        return
    found = _token(run)
    if found is None:
        text = "no token's id is known: the server has no /tokenize, or spells tokens otherwise"
        yield Result(NAME, "", "not checked", text)
        return
    text, token = found

    def check(side: Server) -> Iterator[Result]:
        yield attempted(NAME, "ban", partial(_ban, run, side, text, token))
        yield attempted(NAME, "force", partial(_force, run, side, text, token))

    yield from blamed(run, check)
    yield attempted(NAME, "text without a banned token", partial(_text, run, token))


def _token(run: Comparison) -> tuple[str, int] | None:
    """A frequent token of a greedy answer, which drafts have as well, and its id."""
    answer = run.greedy(run.endpoint, run.longest, logprobs=True)
    whole = [each.text for each in answer.tokens if answer.text.startswith(each.text, each.start)]
    for text, _ in Counter(filter(None, whole)).most_common(_TRIED):
        for side in (run.endpoint, run.reference):
            ids = side.token_ids(text)
            if ids is not None and len(ids) == 1:
                return text, ids[0]
    return None


def _ban(run: Comparison, side: Server, text: str, token: int) -> Result:
    prompt, fields = run.longest, _bias(token, -_MOST)
    found = side.ask(prompt, TOKENS, tops=run.tops(side), **fields).first
    times = sum(each.text == text for each in found.tokens)
    if times:
        words = f"the banned token {text!r} occurs {times} times"
        request = asked(side, prompt, TOKENS, **fields)
        return Result(NAME, "ban", "failed", words, requests=(request,))
    words = f"{text!r} does not occur among {len(found.tokens)} tokens"
    return Result(NAME, "ban", "passed", words)


def _force(run: Comparison, side: Server, text: str, token: int) -> Result:
    prompt, fields = run.longest, _bias(token, _MOST)
    found = side.ask(prompt, FORCED, tops=run.tops(side), **fields).first
    others = [each.text for each in found.tokens if each.text != text]
    if others or not found.tokens:
        words = f"{text!r} is forced, and {others[0]!r} was generated" if others else "no tokens"
        request = asked(side, prompt, FORCED, **fields)
        return Result(NAME, "force", "failed", words, requests=(request,))
    return Result(NAME, "force", "passed", f"{len(found.tokens)} tokens, all {text!r}")


def _text(run: Comparison, token: int) -> Result:
    prompt, fields = run.longest, _bias(token, -_MOST)
    found = run.endpoint.ask(prompt, TOKENS, **fields).first
    expected = run.ask_reference(prompt, TOKENS, **fields).first
    words = f"{len(found.text)} characters, all as the reference's"
    requests = run.requests(prompt, TOKENS, **fields)
    subject = "text without a banned token"
    return compared(NAME, subject, run.judge(expected, found), words, requests)


def _bias(token: int, value: float) -> dict[str, Any]:
    return {"logit_bias": {str(token): value}}


CHECK = Check(NAME, _cost, _run)
