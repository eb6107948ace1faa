"""A streamed text is the text that comes in one piece."""

from collections.abc import Iterator
from functools import partial

from draftwood.lab.endpoint.checks._common import Check, Cost, Size, attempted, blamed, compared
from draftwood.lab.endpoint.comparison import GREEDY_TOKENS, Comparison, asked
from draftwood.lab.endpoint.result import Result
from draftwood.lab.endpoint.server import Server

NAME = "streaming"


def _cost(size: Size) -> Cost:
    return Cost(size.sides, size.sides * GREEDY_TOKENS)


def _run(run: Comparison) -> Iterator[Result]:
    def check(side: Server) -> Iterator[Result]:
        yield attempted(NAME, "", partial(_one, run, side))

    yield from blamed(run, check)


def _one(run: Comparison, side: Server) -> Result:
    prompt = run.longest
    found = side.stream(prompt, GREEDY_TOKENS).first
    whole = run.greedy(side, prompt)
    if found.text == whole.text:
        return Result(NAME, "", "passed", f"{len(found.text)} characters, as in one piece")
    # A server that rounds differently from one request to the next is judged by the reference.
    difference = run.judge(run.expected(prompt), found)
    if difference is None or difference.cause == "rounding":
        return compared(NAME, "", difference, f"{len(found.text)} characters, as the reference's")
    request = asked(side, prompt, GREEDY_TOKENS, stream=True)
    text = f"the stream is {found.text[:40]!r}..., the text {whole.text[:40]!r}..."
    return Result(
        NAME,
        "",
        "failed",
        f"{text} (lengths {len(found.text)}, {len(whole.text)})",
        requests=(request,),
    )


CHECK = Check(NAME, _cost, _run)
