"""Latency of an engine that serves several requests. Quiet machine.

``joining``: milliseconds between two steps of some running requests, in the median and at most,
before a long prompt arrives and while it joins, and the time to its first token; beside them the
time of the whole prompt in a forward of its own, which is how long the others would stand still
without pieces.

``chat``: milliseconds to the first token of each turn of a chat, with and without a prefix cache,
and the tokens of its prompt and those that are new.

    python runs/while_serving.py --model smollm2 --dtype float32

Prompts are parts of docs/bench.md. Prints one JSON object.
"""

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import click
import torch

from draftwood import Engine, Request, load
from draftwood.costs.busy import watched
from draftwood.engine.request import Delta
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.protocols import MOST_READ
from runs.first_token import TEXT, prompts_of


def timed_step(engine: Engine) -> tuple[float, set[int]]:
    """Milliseconds of a step, and the requests that got tokens."""
    begun = time.perf_counter()
    events = engine.step()
    passed = time.perf_counter() - begun
    return passed * 1e3, {event.request_id for event in events if isinstance(event, Delta)}


def joining(engine: Engine, ids: Sequence[int], length: int, running: int) -> dict[str, Any]:
    """A long prompt arrives while some requests run."""
    long = prompts_of(ids, length, 2)
    engine.generate([Request(long[0], 1, eos=())])  # warms up
    begun = time.perf_counter()
    engine.generate([Request(long[1], 1, eos=())])
    alone = (time.perf_counter() - begun) * 1e3
    for prompt in prompts_of(ids, 64, running):
        engine.add(Request(prompt, 4000, eos=()))
    usual = [timed_step(engine)[0] for _ in range(60)][20:]
    late, gaps = engine.add(Request(long[0], 4000, eos=())), []
    arrived = time.perf_counter()
    while True:
        passed, told = timed_step(engine)
        gaps.append(passed)
        if late in told:
            break
    first = (time.perf_counter() - arrived) * 1e3
    # Then drafters read the prompt.
    gaps += [timed_step(engine)[0] for _ in range(3 + length // MOST_READ)]
    for number in range(late + 1):
        engine.cancel(number)
    return {
        "prompt_tokens": length,
        "running": running,
        "usual": {"median": statistics.median(usual), "most": max(usual)},
        "joining": {"median": statistics.median(gaps), "most": max(gaps), "steps": len(gaps)},
        "first_token": first,
        "alone": alone,
    }


def chat(engine: Engine, ids: Sequence[int], turns: int, new: int) -> list[dict[str, float]]:
    """Turns of a chat, each the text so far and some new tokens."""
    found, text, before = [], list(ids[:new]), 0
    for turn in range(turns):
        [done] = engine.generate([Request(tuple(text), 32, eos=())])
        cost = {"prompt": len(text), "new": len(text) - before, "milliseconds": done.ttft * 1e3}
        found.append(cost)
        before = len(text) + len(done.tokens) - 1
        text += [*done.tokens, *ids[(turn + 1) * new : (turn + 2) * new]]
    return found


@click.command()
@click.option("--model", default="embedded", show_default=True)
@click.option("--dtype", default="auto", show_default=True)
@click.option("--methods", default="ar,auto", show_default=True)
@click.option("--length", default=4096, show_default=True, help="Tokens of the long prompt.")
@click.option("--running", default=4, show_default=True, help="Requests that run.")
@click.option("--turns", default=10, show_default=True, help="Of the chat.")
@click.option("--new", default=128, show_default=True, help="New tokens of a turn.")
@click.option("--threads", default=2, show_default=True)
def main(
    model: str,
    dtype: str,
    methods: str,
    length: int,
    running: int,
    turns: int,
    new: int,
    threads: int,
) -> None:
    """Measure and print."""
    torch.set_num_threads(threads)
    loaded = load(model, dtype=dtype)
    ids = loaded.tokenizer.encode(TEXT.read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    with watched() as neighbours:
        for name in methods.split(","):
            plain = Engine(loaded.model, name, loaded.tokenizer)
            cached = Engine(loaded.model, name, loaded.tokenizer, prefix_cache="2GB")
            chat(plain, ids, 2, new)  # warms up
            found[name] = {
                "joining": joining(plain, ids, length, running),
                "chat": {"computed": chat(plain, ids, turns, new)}
                | {"prefix_cache": chat(cached, ids, turns, new)},
            }
    settings = {"threads": threads, "length": length, "running": running, "turns": turns}
    facts = provenance(
        model={"name": loaded.name, "dtype": str(loaded.model.dtype).removeprefix("torch.")},
        settings=settings | {"new": new},
        sets=[],
    )
    facts["other_processes"] = recorded(neighbours.others, neighbours.others)
    click.echo(json.dumps({"provenance": facts, "while_serving": found}))


if __name__ == "__main__":
    main()
