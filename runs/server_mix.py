"""Whether a server gives every request the tokens that it would have alone.

Requests with mixed settings (``runs/mixed_requests.py``) arrive by a Poisson process, and at most
``--concurrency`` of them run at once. A tenth of them is cancelled in the middle: the client closes
the stream. Then each request is decoded alone and plainly with its seed, in this process, and
compared: text, tokens, their number and the reason of the end; of a cancelled one, what came.

The server must decode in float32, with a method that keeps plain decoding's tokens. Prints one JSON
object. A *near tie* is a difference that rounding of the logits explains, as in the benchmark.

    python runs/server_mix.py http://127.0.0.1:8000 --model embedded
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import httpx
import torch

import draftwood
from draftwood.lab.bench.provenance import git_state, hardware, versions
from runs.arrivals import answered, event
from runs.mixed_answers import Alone, Answer, Difference, differences
from runs.mixed_requests import KINDS, Mixed, mixed

WAIT = 30.0
"""Most seconds until a server holds nothing, after its last answer."""


@dataclass
class Run:
    """What a server answered, the most requests at once, and what it held in the end."""

    answers: list[Answer] = field(default_factory=list)
    most: int = 0
    held: int = 0
    stats: dict[str, Any] = field(default_factory=dict)


async def ask(client: httpx.AsyncClient, asked: Mixed) -> Answer:
    """Send a request and read its answer, or as much of it as the client waits for."""
    answer, chunks = Answer(), 0
    try:
        async with client.stream("POST", asked.path, json=dict(asked.body)) as response:
            if response.status_code != httpx.codes.OK or not asked.body.get("stream"):
                answer.add(json.loads(await response.aread()))
                return answer
            async for line in response.aiter_lines():
                if found := event(line):
                    chunks += answer.add(found)
                ended = any(each.reason for each in answer.choices.values())
                if 0 < asked.cancelled_after <= chunks and not ended:
                    answer.cancelled = True
                    return answer
    except (httpx.HTTPError, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    return answer


async def ask_all(
    url: str, requests: Sequence[Mixed], concurrency: int, rate: float, seed: int
) -> Run:
    """All answers, in the order of the requests; ``rate``: arrivals a second."""
    running, run = 0, Run()
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:

        async def one(asked: Mixed) -> Answer:
            nonlocal running
            running += 1
            run.most = max(run.most, running)
            try:
                return await ask(client, asked)
            finally:
                running -= 1

        run.answers = await answered(requests, one, concurrency, rate, random.Random(seed))
        end = time.monotonic() + WAIT
        while True:
            run.stats = (await client.get("/stats")).raise_for_status().json()
            run.held = run.stats["running"] + run.stats["waiting"]
            if not run.held or time.monotonic() > end:
                return run
            await asyncio.sleep(0.05)


def figures(
    requests: Sequence[Mixed], run: Run, found: Sequence[Sequence[Difference]], details: int
) -> dict[str, Any]:
    """Counts of requests, in all and by kind, and the first faults.

    A request is a near tie if rounding explains each of its differences.
    """
    outcomes = [
        "equal" if not each else "near_ties" if all(d.near_tie for d in each) else "faults"
        for each in found
    ]
    names = ("equal", "near_ties", "faults")
    kinds = {}
    for kind in KINDS:
        of = [o for o, asked in zip(outcomes, requests, strict=True) if kind in asked.kinds]
        kinds[kind] = {"requests": len(of), **{name: of.count(name) for name in names}}
    wrong = [
        {
            "request": i,
            "kinds": sorted(asked.kinds),
            **{name: getattr(each, name) for name in ("choice", "what", "position")},
            "expected": each.expected,
            "found": each.found,
            "gap": None if each.margin is None else each.margin.gap,
            "bound": None if each.margin is None else each.margin.bound,
            "body": dict(asked.body),
        }
        for i, asked in enumerate(requests)
        for each in found[i]
        if outcomes[i] == "faults" and not each.near_tie
    ]
    stats = ("method", "request_steps", "committed_tokens", "accepted_draft_tokens", "sources")
    return {
        "requests": len(requests),
        "cancelled": sum(a.cancelled for a in run.answers),
        "finished": sum(not a.cancelled and not a.error for a in run.answers),
        "errors": sum(bool(a.error) for a in run.answers),
        "most_at_once": run.most,
        "held_in_the_end": run.held,
        **{name: outcomes.count(name) for name in names},
        "kinds": kinds,
        "first_faults": wrong[:details],
        "server": {name: run.stats[name] for name in (*stats, "prefix_hits")},
    }


@click.command()
@click.argument("url")
@click.option("--model", default="embedded", show_default=True, help="Which the server serves.")
@click.option("--requests", "count", default=200, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Most requests at once.")
@click.option("--rate", default=8.0, show_default=True, help="Arrivals a second.")
@click.option("--seed", default=0, show_default=True, help="Of the requests and their arrival.")
@click.option("--details", default=5, show_default=True, help="Faults that are told in full.")
@click.option("--threads", default=1, show_default=True)
def main(
    url: str,
    model: str,
    count: int,
    concurrency: int,
    rate: float,
    seed: int,
    details: int,
    threads: int,
) -> None:
    """Ask the server at URL, compare and print."""
    torch.set_num_threads(threads)
    code = git_state(Path(draftwood.__file__).parent)
    alone = Alone(model)
    requests = mixed(count, seed, alone.tokenizer)
    run = asyncio.run(ask_all(url, requests, concurrency, rate, seed))
    pairs = zip(requests, run.answers, strict=True)
    found = [differences(asked, answer, alone) for asked, answer in pairs]
    settings = {"model": model, "concurrency": concurrency, "rate": rate, "seed": seed}
    facts = {
        **settings,
        **figures(requests, run, found, details),
        "git": code,
        "versions": versions(),
        "hardware": hardware(),
    }
    click.echo(json.dumps(facts))


if __name__ == "__main__":
    main()
