"""Cost of a step on this machine: by nodes, and outside the model's forward; index memory.

Prints one JSON object. Run it on a quiet machine:

    python runs/engine_overhead.py --model embedded --context 512 --threads 2
"""

import json
import statistics
import time
import tracemalloc
from collections.abc import Sequence
from unittest.mock import patch

import click
import numpy as np
import torch

from draftwood import attach, load
from draftwood.costs.busy import watched
from draftwood.costs.measure import Grid, measure_target
from draftwood.drafters.adjacency.drafter import Adjacency
from draftwood.drafters.context import Context
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Delta, Finished, Request, Stepped
from draftwood.engine.request_step import RequestStep
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.methods import method
from draftwood.protocols import Host, Outcome, Prefill, TargetOutput
from draftwood.tree import tree_of
from runs.host_work import NEW_TOKENS, host_work, usual_size
from runs.read_speed import read_speed, weight_bytes

SECONDS = 10.0
"""Time limit of a curve."""

METHODS = (
    "ar",
    "goose:budget=8:bypass=off",
    "goose:budget=16:bypass=off",
    "goose:bypass=off",
    "auto:neural=:shipped=table",
)
AT_16 = ("goose:budget=16:bypass=off", "auto:neural=:shipped=table:budget=16")
"""Whose host work is told by phase, at each of :data:`BATCHES`."""

BATCHES = (1, 8)
TEXT = "def add(self, a, b):\n    return a + b\n\n"


def outside_model(
    engine: Engine, model: torch.nn.Module, prompt: Sequence[int]
) -> dict[str, float]:
    """Median milliseconds of a step, of the model's forward in it, and of everything else.

    And of making the step's events, which on a GPU is done during the next forward.
    """
    inside = [0.0]
    started = [0.0]
    telling = [0.0]
    whole = RequestStep.events

    def events_of(step: RequestStep) -> tuple[Delta, Stepped]:
        begun = time.perf_counter()
        made = whole(step)
        telling[0] += time.perf_counter() - begun
        return made

    before = model.register_forward_pre_hook(lambda *_: started.__setitem__(0, time.perf_counter()))
    after = model.register_forward_hook(
        lambda *_: inside.__setitem__(0, inside[0] + time.perf_counter() - started[0])
    )
    rows = []
    engine.add(Request(prompt, max_new_tokens=NEW_TOKENS))
    engine.step()
    while engine.busy:
        inside[0] = telling[0] = 0.0
        start = time.perf_counter()
        with patch.object(RequestStep, "events", events_of):
            events = engine.step()
        total = time.perf_counter() - start
        drafted = [e.stats.tree.drafted for e in events if isinstance(e, Stepped)]
        if drafted and not any(isinstance(e, Finished) for e in events):
            rows.append((drafted[0], total, inside[0], telling[0]))
    before.remove()
    after.remove()
    usual = usual_size([row[0] for row in rows])
    rows = [row for row in rows if row[0] >= usual]
    return {
        "drafted": usual,
        "steps": len(rows),
        "step_ms": statistics.median(total for _, total, _, _ in rows) * 1e3,
        "model_ms": statistics.median(model for _, _, model, _ in rows) * 1e3,
        "outside_ms": statistics.median(total - model for _, total, model, _ in rows) * 1e3,
        "outside_share": statistics.median((total - model) / total for _, total, model, _ in rows),
        "events_ms": statistics.median(telling for _, _, _, telling in rows) * 1e3,
    }


def index_memory(host: Host, tokens: int) -> dict[str, float]:
    """Megabytes of both drafters' indexes after ``tokens`` tokens of random text, 59-node trees."""
    rng = np.random.default_rng(0)
    info = host.info
    context, adjacency = Context().build(host), Adjacency().build(host)
    k = adjacency.needs.top_k

    def rows(count: int) -> TargetOutput:
        top = rng.integers(info.vocab_size, size=(count, k))
        probs = np.full((count, k), 1 / k, dtype=np.float32)
        return TargetOutput(torch.empty(0), top[:, 0], top, probs)

    tracemalloc.start()
    prompt = rng.integers(info.vocab_size, size=1000)
    begun = Prefill(prompt, 0, rows(1000))
    for drafter in (context, adjacency):
        drafter.begin(0, begun)
    seen = 1000
    while seen < tokens:
        parents = [-1, *(int(rng.integers(node)) for node in range(1, 60))]
        tree = tree_of(rng.choice(info.vocab_size, 60, replace=False).tolist(), parents)
        path = tree.path(int(rng.integers(60)))
        bonus = int(rng.integers(info.vocab_size))
        committed = (*(int(tree.tokens[i]) for i in path), bonus)
        outcome = Outcome(tree, path, committed, rows(60))
        for drafter in (context, adjacency):
            drafter.observe(0, outcome)
        seen += len(committed)
    native = adjacency._tables[0].native
    untraced = 0.0 if native is None else native.index_bytes / 1e6
    return {
        "tokens": seen,
        "context_mb": traced_mb("context.py"),
        "adjacency_mb": traced_mb("adjacency/*.py") + untraced,
    }


def traced_mb(files: str) -> float:
    """Megabytes allocated by files of ``draftwood/drafters`` and not freed.

    Raises:
        DraftwoodError: nothing was, so that the pattern names no file of a drafter.
    """
    only = tracemalloc.Filter(inclusive=True, filename_pattern=f"*/drafters/{files}")
    held = tracemalloc.take_snapshot().filter_traces([only])
    if not held.traces:
        raise DraftwoodError(f"no memory is held by {files} of draftwood/drafters")
    return sum(trace.size for trace in held.traces) / 1e6


@click.command()
@click.option("--model", default="embedded", show_default=True)
@click.option("--dtype", default="auto", show_default=True)
@click.option("--context", default=512, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option(
    "--text", default=100_000, show_default=True, help="Tokens of which indexes are measured."
)
def main(model: str, dtype: str, context: int, threads: int, text: int) -> None:
    """Measure and print."""
    torch.set_num_threads(threads)
    loaded = load(model, dtype=dtype)
    curves, target = {}, None
    weights = weight_bytes(loaded.model)
    with watched() as neighbours:
        speed = read_speed()
        for name, packing in (("off", False), ("on", True)):
            if target is not None:
                target.detach()
            target = attach(loaded.model, packing=packing)
            samples = measure_target(target, Grid(contexts=(context,), seconds=SECONDS))
            curves[name] = {found.tokens: found.seconds * 1e3 for found in samples}
        assert target is not None
        prompt = loaded.tokenizer.encode(TEXT * 12)

        def engine(name: str) -> Engine:
            return Engine(target, method(name), loaded.tokenizer)

        steps = {name: outside_model(engine(name), loaded.model, prompt) for name in METHODS}
        work = {
            name: {
                str(batch): host_work(engine(name), loaded.model, [prompt] * batch)
                for batch in BATCHES
            }
            for name in AT_16
        }
    facts = provenance(
        model={"name": model, "dtype": str(target.info.dtype)},
        settings={"context": context, "threads": threads},
        sets=[],
    )
    facts["other_processes"] = recorded(neighbours.others, neighbours.others)
    click.echo(
        json.dumps(
            {
                "provenance": facts,
                "cost_ms_by_nodes": curves,
                "reading": {"weights_mb": weights / 1e6, "gb_per_second": speed / 1e9},
                "steps": steps,
                "host_work": work,
                "index_memory": index_memory(ModelHost(target), text),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
