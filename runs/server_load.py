"""Load on servers with OpenAI's API: tokens a second, first tokens, gaps between chunks.

The servers of a file take turns: in each round every one of them is loaded for ``--seconds`` while
the others are stopped, so that a machine whose speed drifts slows all of them alike. A line of the
file is a JSON object: ``name``, ``url``, ``model`` (in the requests), ``software`` (package and
version), ``process`` (its process and group) and ``fields`` (further ones of each request).

Each server first answers a few short chats, ``--concurrency`` at once, which are not counted: some
prepare at their first requests. Then requests arrive by a Poisson process, and at most
``--concurrency`` of them run at once; one that arrives beyond that waits in this process, and its
times begin when it is sent. All are chats of one message, greedy, streamed, of the same
``--tokens``. Each round has its share of the prompts, which all servers get in the same order, and
none twice, as servers keep the beginnings of prompts; a server that needs more ends the run. Tokens
are counted by encoding the answers with the tokenizer of ``--model``, so that
it does not matter how a server counts or cuts them.

Prints one JSON object. Of each server it has the figures of all rounds, the tokens a second of each
round, and the shares of the cores that the client used, which takes from the server on a small
machine, and that neither used. ``answers`` has the first digits of a hash of each finished one, by
the number of its prompt: those of two servers are the same where these are.

    python runs/server_load.py servers.jsonl --model smollm2 --dtype float32 --prompts gsm8k.jsonl
"""

import asyncio
import hashlib
import itertools
import json
import math
import os
import random
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import httpx
import numpy as np
from transformers import AutoTokenizer

from draftwood import models
from draftwood.costs.busy import Others, counters, total_usage, usage_between
from draftwood.files import decode
from draftwood.lab.bench.prompts import read, sources
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.lab.loops import pooled, repeats
from runs.arrivals import answered, event
from runs.process_time import cpu_seconds

WARM_UP_TOKENS = 16
"""Most new tokens of a request that is not counted."""


@dataclass(frozen=True)
class Server:
    """A server that runs; see above."""

    name: str
    url: str
    model: str
    software: str
    process: int
    fields: dict[str, Any]


@dataclass
class Answer:
    """One request: when it was sent, when each chunk came, its text and its error."""

    sent: float
    chunks: list[float] = field(default_factory=list)
    text: str = ""
    error: str = ""


@dataclass
class Slice:
    """What one round showed of a server.

    Attributes:
        began: when it began.
        answers: of its requests, in the order of the prompts.
        client: share of the cores that the client used.
        others: what neither it nor the server used; None: unknown.
    """

    began: float
    answers: list[Answer]
    client: float
    others: Others | None


async def ask(client: httpx.AsyncClient, body: dict[str, object]) -> Answer:
    """Send a chat and read the answer to its end."""
    answer = Answer(time.perf_counter())
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                answer.error = f"{response.status_code}: {(await response.aread())[:200]!r}"
                return answer
            async for line in response.aiter_lines():
                piece = content(line)
                if piece:
                    answer.chunks.append(time.perf_counter())
                    answer.text += piece
    except httpx.HTTPError as error:
        answer.error = f"{type(error).__name__}: {error}"
    return answer


def content(line: str) -> str:
    """The text of a line of server-sent events."""
    choices = (event(line) or {}).get("choices") or [{}]
    return (choices[0].get("delta") or {}).get("content") or ""


async def run(
    url: str, bodies: Iterable[dict[str, object]], concurrency: int, rate: float, seconds: float
) -> list[Answer]:
    """Answers of all requests that were sent within so many seconds."""
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        draw, send = random.Random(0), partial(ask, client)
        return await answered(bodies, send, concurrency, rate, draw, seconds)


def quantiles(values: list[float]) -> dict[str, float | None]:
    """Median and 99th percentile, in seconds."""
    if not values:
        return {"p50": None, "p99": None}
    return {f"p{q}": round(float(np.percentile(values, q)), 5) for q in (50, 99)}


def finished(answers: Sequence[Answer], counts: Sequence[int]) -> list[tuple[Answer, int]]:
    """The answers without an error, with their tokens."""
    return [(a, n) for a, n in zip(answers, counts, strict=True) if not a.error and a.chunks]


def speed(answers: Sequence[Answer], counts: Sequence[int], began: float) -> float:
    """Tokens a second of a round: up to the last chunk."""
    done = finished(answers, counts)
    last = max((a.chunks[-1] for a, _ in done), default=began)
    return sum(n for _, n in done) / (last - began) if done else 0.0


def figures(rounds: Sequence[Slice], ids: Sequence[Sequence[list[int]]]) -> dict[str, object]:
    """The figures of a server; ``ids``: tokens of each answer of each round."""
    answers = [answer for each in rounds for answer in each.answers]
    counts = [len(own) for each in ids for own in each]
    speeds = [
        round(speed(each.answers, [len(own) for own in found], each.began), 2)
        for each, found in zip(rounds, ids, strict=True)
    ]
    done = finished(answers, counts)
    gaps = [b - a for answer, _ in done for a, b in itertools.pairwise(answer.chunks)]
    return {
        "requests": len(answers),
        "finished": len(done),
        "errors": sorted({a.error for a in answers if a.error})[:5],
        "tokens": sum(n for _, n in done),
        "tokens_per_second": float(np.median(speeds)),
        "of_rounds": speeds,
        "first_token": quantiles([a.chunks[0] - a.sent for a, _ in done]),
        "gap": quantiles(gaps),
        "time_per_token": quantiles(
            [(a.chunks[-1] - a.chunks[0]) / (n - 1) for a, n in done if n > 1]
        ),
        "repeated_8grams": pooled(repeats(own) for each in ids for own in each).share,
        "client_share": round(float(np.mean([each.client for each in rounds])), 4),
    }


def hashes(rounds: Sequence[Sequence[Answer]], share: int) -> dict[int, str]:
    """The first digits of a hash of each finished answer, by the number of its prompt.

    Args:
        rounds: answers of each round.
        share: prompts of a round.
    """
    return {
        turn * share + index: hashlib.sha256(answer.text.encode()).hexdigest()[:12]
        for turn, answers in enumerate(rounds)
        for index, answer in enumerate(answers)
        if not answer.error
    }


B = TypeVar("B")


def of_round(bodies: Sequence[B], turn: int, rounds: int, name: str) -> Iterator[B]:
    """A server's requests of a round; none is in another round.

    Raises:
        click.ClickException: the server has answered all of them, and needs more.
    """
    share = len(bodies) // rounds
    yield from bodies[turn * share : (turn + 1) * share]
    raise click.ClickException(
        f"{name} was sent all {share} prompts of round {turn + 1} before the time was over, and "
        "none is sent twice: give more prompts of each set (LIMIT of server_load.sh, --limit)"
    )


def bodies(server: Server, texts: Sequence[str], tokens: int) -> list[dict[str, object]]:
    """The requests to a server."""
    return [
        {
            "model": server.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            **server.fields,
        }
        for text in texts
    ]


def warm_up(server: Server, concurrency: int) -> None:
    """Have so many short chats answered at once.

    Raises:
        click.ClickException: one was not answered.
    """
    texts = [f"What is {number} plus {number}?" for number in range(concurrency)]
    chats = bodies(server, texts, WARM_UP_TOKENS)
    answers = asyncio.run(run(server.url, chats, concurrency, rate=0, seconds=math.inf))
    errors = {answer.error for answer in answers if answer.error}
    if errors:
        raise click.ClickException(f"{server.name} did not answer: {min(errors)}")


@contextmanager
def alone(server: Server, servers: Sequence[Server]) -> Iterator[None]:
    """Stop the other servers for a while."""
    others = [each.process for each in servers if each is not server]
    for process in others:
        os.killpg(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in others:
            os.killpg(process, signal.SIGCONT)


def slice_of(server: Server, load: partial[Any]) -> Slice:
    """One round of a server; ``load``: :func:`run` with all but the URL."""
    before, served = counters(), cpu_seconds(server.process)
    began, used = time.perf_counter(), sum(os.times()[:2])
    answers: list[Answer] = asyncio.run(load(server.url))
    passed, used = time.perf_counter() - began, sum(os.times()[:2]) - used
    others, served = usage_between(before, counters()), cpu_seconds(server.process) - served
    if others is not None:
        others = Others(others.seconds - served, others.available)
    return Slice(began, answers, used / passed / (os.cpu_count() or 1), others)


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True), metavar="SERVERS")
@click.option("--model", "name", required=True, help="Whose tokenizer counts the tokens.")
@click.option("--dtype", required=True, help="Number format of the servers' weights.")
@click.option("--prompts", required=True, help="Prompt files, with commas between them.")
@click.option("--limit", default=100, show_default=True, help="Prompts of each file.")
@click.option("--tokens", default=128, show_default=True, help="Most new tokens of a request.")
@click.option("--concurrency", default=1, show_default=True, help="Most requests at once.")
@click.option("--rate", default=0.0, help="Arrivals a second; 0: a place never stays free.")
@click.option("--rounds", default=3, show_default=True, help="Turns of each server.")
@click.option("--seconds", default=60.0, show_default=True, help="Time of a turn.")
def main(
    path: Path,
    name: str,
    dtype: str,
    prompts: str,
    limit: int,
    tokens: int,
    concurrency: int,
    rate: float,
    rounds: int,
    seconds: float,
) -> None:
    """Load the servers of SERVERS in turn."""
    servers = [decode(Server, json.loads(line), "server") for line in path.open(encoding="utf-8")]
    sets = sources(prompts)
    texts = list(dict.fromkeys(prompt.turns[0] for prompt in read(sets, limit)))
    random.Random(0).shuffle(texts)
    given = {each.name: bodies(each, texts, tokens) for each in servers}
    for server in servers:
        with alone(server, servers):
            warm_up(server, concurrency)
    found: dict[str, list[Slice]] = {each.name: [] for each in servers}
    for turn in range(rounds):
        # Each is first as often as the others.
        for server in (servers[turn % len(servers) :] + servers)[: len(servers)]:
            load = partial(
                run,
                bodies=of_round(given[server.name], turn, rounds, server.name),
                concurrency=concurrency,
                rate=rate,
                seconds=seconds,
            )
            with alone(server, servers):
                found[server.name].append(slice_of(server, load))
    tokenizer = AutoTokenizer.from_pretrained(models.location(name))
    loads = {}
    for server in servers:
        slices = found[server.name]
        ids = [
            [tokenizer(a.text, add_special_tokens=False)["input_ids"] for a in each.answers]
            for each in slices
        ]
        loads[server.name] = {
            "software": server.software,
            **figures(slices, ids),
            "answers": hashes([each.answers for each in slices], len(texts) // rounds),
        }
    others = total_usage(each.others for slices in found.values() for each in slices)
    facts = provenance(
        model={"name": name, "dtype": dtype},
        settings={
            "concurrency": concurrency,
            "rate": rate,
            "rounds": rounds,
            "seconds": seconds,
            "max_tokens": tokens,
            "prompts": len(texts),
            "prompts_a_round": len(texts) // rounds,
        },
        sets=sets,
    )
    facts["other_processes"] = recorded(others, others)
    click.echo(json.dumps({"provenance": facts, "server_load": loads}))


if __name__ == "__main__":
    main()
