"""The same seed gives the same text; with and without speculation only some servers promise it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from draftwood.lab.endpoint.checks._common import Check, Cost, Size, attempted, blamed
from draftwood.lab.endpoint.comparison import Comparison, Side, asked
from draftwood.lab.endpoint.result import Outcome, Result
from draftwood.lab.endpoint.server import Server

NAME = "seeds"
SEEDS = 3
TOKENS = 32


def _cost(size: Size) -> Cost:
    requests = 2 * SEEDS * size.sides
    return Cost(requests, requests * TOKENS)


def _run(run: Comparison) -> Iterator[Result]:
    texts: dict[int, list[str]] = {}

    def check(side: Server) -> Iterator[Result]:
        yield attempted(NAME, "repeated", partial(_repeated, run, side, texts))

    yield from blamed(run, check)
    if id(run.endpoint) in texts:
        yield attempted(NAME, "without speculation", partial(_plain, run, texts))


def _texts(run: Comparison, side: Side) -> list[str]:
    seeds = range(run.settings.seed, run.settings.seed + SEEDS)
    return [
        side.ask(run.settings.sampled_prompt, TOKENS, temperature=1.0, seed=seed).first.text
        for seed in seeds
    ]


def _repeated(run: Comparison, side: Server, texts: dict[int, list[str]]) -> Result:
    first, second = _texts(run, side), _texts(run, side)
    texts[id(side)] = first
    same = sum(a == b for a, b in zip(first, second, strict=True))
    fields: dict[str, Any] = {"temperature": 1.0, "seed": run.settings.seed}
    request = asked(side, run.settings.sampled_prompt, TOKENS, **fields)
    figures = {"seeds": float(SEEDS), "same": float(same)}
    if same == SEEDS and len(set(first)) == 1:
        text = f"{SEEDS} seeds give one text at temperature 1"
        return Result(NAME, "repeated", "failed", text, figures=figures, requests=(request,))
    outcome: Outcome = "passed" if same == SEEDS else "undecided" if same else "failed"
    text = f"{same} of {SEEDS} seeds give the same text twice"
    if outcome == "passed":
        return Result(NAME, "repeated", outcome, text, figures=figures)
    if outcome == "undecided":
        text += ": rounding that depends on other requests can do that"
    return Result(NAME, "repeated", outcome, text, figures=figures, requests=(request,))


def _plain(run: Comparison, texts: dict[int, list[str]]) -> Result:
    mine = texts[id(run.endpoint)]
    reference = texts.get(id(run.reference)) or _texts(run, run.reference)
    same = sum(a == b for a, b in zip(mine, reference, strict=True))
    figures = {"seeds": float(SEEDS), "same": float(same)}
    text = f"{same} of {SEEDS} seeds give the reference's text"
    if not run.settings.same_seed:
        note = "" if same == SEEDS else " (not promised by most servers)"
        return Result(NAME, "without speculation", "note", f"{text}{note}", figures=figures)
    outcome: Outcome = "passed" if same == SEEDS else "failed"
    return Result(NAME, "without speculation", outcome, text, figures=figures)


CHECK = Check(NAME, _cost, _run)
