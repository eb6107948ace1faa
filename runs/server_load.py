"""Load on a server with OpenAI's API: tokens a second, first tokens, gaps between chunks.

Requests arrive by a Poisson process, and at most ``--concurrency`` of them run at once; one that
arrives beyond that waits in this process, and its times begin when it is sent. All are chats of one
message, greedy, streamed, of the same ``--tokens``; a server gets the prompts in the same order,
and none twice unless there are too few. Tokens are counted by encoding the answers with the
tokenizer of ``--model``, so that it does not matter how a server counts or cuts them.

Prints one JSON object. In it are the shares of the cores that the client used, which takes from the
server on a small machine, and that neither used. ``answers`` has the first digits of a hash of each
finished one, by the number of its prompt: those of two servers are the same where these are.

    python runs/server_load.py http://127.0.0.1:8000 --model smollm2 --dtype float32 --label mine \\
        --prompts mt_bench.jsonl --server-process 4321
"""

import asyncio
import hashlib
import itertools
import json
import os
import random
import time
from dataclasses import dataclass, field
from functools import partial

import click
import httpx
import numpy as np
from transformers import AutoTokenizer

from draftwood import models
from draftwood.costs.busy import Others, counters, usage_between
from draftwood.lab.bench.prompts import read, sources
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.lab.loops import pooled, repeats
from runs.arrivals import answered, event
from runs.process_time import cpu_seconds


@dataclass
class Answer:
    """One request: when it was sent, when each chunk came, its text and its error."""

    sent: float
    chunks: list[float] = field(default_factory=list)
    text: str = ""
    error: str = ""


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
    url: str, bodies: list[dict[str, object]], concurrency: int, rate: float, seconds: float
) -> list[Answer]:
    """Answers of all requests that were sent within so many seconds."""
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        asked = itertools.cycle(bodies)
        draw, send = random.Random(0), partial(ask, client)
        return await answered(asked, send, concurrency, rate, draw, seconds)


def quantiles(values: list[float]) -> dict[str, float | None]:
    """Median and 99th percentile, in seconds."""
    if not values:
        return {"p50": None, "p99": None}
    return {f"p{q}": round(float(np.percentile(values, q)), 5) for q in (50, 99)}


def figures(answers: list[Answer], ids: list[list[int]], began: float) -> dict[str, object]:
    """The figures of a run; ``ids``: tokens of each answer."""
    found = [(a, len(own)) for a, own in zip(answers, ids, strict=True)]
    done = [(a, n) for a, n in found if not a.error and a.chunks]
    last = max((a.chunks[-1] for a, _ in done), default=began)
    gaps = [b - a for answer, _ in done for a, b in itertools.pairwise(answer.chunks)]
    return {
        "requests": len(answers),
        "finished": len(done),
        "errors": sorted({a.error for a in answers if a.error})[:5],
        "tokens": sum(n for _, n in done),
        "seconds": round(last - began, 3),
        "tokens_per_second": round(sum(n for _, n in done) / (last - began), 2) if done else 0.0,
        "first_token": quantiles([a.chunks[0] - a.sent for a, _ in done]),
        "gap": quantiles(gaps),
        "time_per_token": quantiles(
            [(a.chunks[-1] - a.chunks[0]) / (n - 1) for a, n in done if n > 1]
        ),
        "repeated_8grams": pooled(map(repeats, ids)).share,
    }


def hashes(answers: list[Answer], prompts: int) -> dict[int, str]:
    """The first digits of a hash of each finished answer, by the number of its prompt."""
    return {
        index % prompts: hashlib.sha256(answer.text.encode()).hexdigest()[:12]
        for index, answer in enumerate(answers)
        if not answer.error
    }


@click.command()
@click.argument("url")
@click.option("--model", "name", required=True, help="Whose tokenizer counts the tokens.")
@click.option("--served", help="Name of the model in the requests; by default that of --model.")
@click.option("--dtype", required=True, help="Number format of the server's weights.")
@click.option("--prompts", required=True, help="Prompt files, with commas between them.")
@click.option("--limit", default=100, show_default=True, help="Prompts of each file.")
@click.option("--tokens", default=128, show_default=True, help="Most new tokens of a request.")
@click.option("--concurrency", default=1, show_default=True, help="Most requests at once.")
@click.option("--rate", default=0.0, help="Arrivals a second; 0: a place never stays free.")
@click.option("--seconds", default=180.0, show_default=True, help="Time in which requests start.")
@click.option("--label", required=True, help="Name of the server in the result.")
@click.option("--fields", default="{}", help="JSON: further fields of each request.")
@click.option("--software", default="", help="Package that serves, and its version.")
@click.option("--server-process", type=int, required=True, help="Process of the server.")
def main(
    url: str,
    name: str,
    served: str | None,
    dtype: str,
    prompts: str,
    limit: int,
    tokens: int,
    concurrency: int,
    rate: float,
    seconds: float,
    label: str,
    fields: str,
    software: str,
    server_process: int,
) -> None:
    """Load the server at URL."""
    sets = sources(prompts)
    texts = [prompt.turns[0] for prompt in read(sets, limit)]
    random.Random(0).shuffle(texts)
    bodies: list[dict[str, object]] = [
        {
            "model": served or name,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            **json.loads(fields),
        }
        for text in texts
    ]
    before, served_for = counters(), cpu_seconds(server_process)
    began, used = time.perf_counter(), sum(os.times()[:2])
    answers = asyncio.run(run(url, bodies, concurrency, rate, seconds))
    passed, used = time.perf_counter() - began, sum(os.times()[:2]) - used
    others = usage_between(before, counters())
    if others is not None:
        served_for = cpu_seconds(server_process) - served_for
        others = Others(others.seconds - served_for, others.available)
    tokenizer = AutoTokenizer.from_pretrained(models.location(name))
    ids = [tokenizer(a.text, add_special_tokens=False)["input_ids"] for a in answers]
    facts = provenance(
        model={"name": name, "dtype": dtype},
        settings={
            "concurrency": concurrency,
            "rate": rate,
            "seconds": seconds,
            "max_tokens": tokens,
            "limit": limit,
            "fields": json.loads(fields),
            "software": software,
        },
        sets=sets,
    )
    facts["other_processes"] = recorded(others, others)
    found = {
        "server": label,
        "concurrency": concurrency,
        "prompts": len(texts),
        **figures(answers, ids, began),
        "client_share": round(used / passed / (os.cpu_count() or 1), 4),
        "answers": hashes(answers, len(texts)),
    }
    click.echo(json.dumps({"provenance": facts, "server_load": found}))


if __name__ == "__main__":
    main()
