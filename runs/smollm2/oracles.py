"""What limits ``auto``: replays a recording with one part of it made perfect at a time.

    python runs/smollm2/oracles.py RECORDING... --model smollm2 [--method auto:layout=ranked]

The parts, by expected tokens per second over plain decoding, at given step costs and batch sizes:

* ``auto``: as it is;
* ``acceptance``: of the candidates that it finds, it knows which the target accepts;
* ``search``: it drops no candidate for being unlikely, and looks at four times as many;
* ``both``: the most that the candidates of its sources could give;
* ``candidates``: a draft that is always right, as long as pays at these costs;
* ``cost``: as it is, where a drafted node costs nothing.

What ``acceptance`` adds is lost by the calibration, what ``search`` adds by the search, the rest up
to ``candidates`` by the sources, and ``cost`` shows what verifying takes. For a batch, trees are
planned as by ``draftwood replay --batch`` (docs/replay.md). Prints one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from draftwood.costs.costs_file import read_costs
from draftwood.costs.curve import Curve, StepCosts
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.replay.decoding import StepWork
from draftwood.lab.replay.figures import BatchLoad, speed
from draftwood.lab.replay.file import write
from draftwood.lab.replay.hosts import PricedHost
from draftwood.lab.replay.pricing import of_sequence
from draftwood.lab.replay.recording import Recording
from draftwood.lab.replay.replayer import Replayer
from draftwood.lab.replay.substitute import ReplayMethod, replay_method
from draftwood.lab.replay.target import ReplayTarget
from draftwood.methods import method
from draftwood.methods.equip import equipped
from draftwood.policies.auto import policy, tuner
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import Bid, Growth
from draftwood.tree import ROOT
from runs.smollm2.recorded import answers_by_name, facts, recorded

LONGEST = 64
"""Nodes of a draft that is always right, at most."""


def reveal(pool: Pool, text: Sequence[int]) -> list[float]:
    """Set the candidates' probabilities to what happens; the values of the right ones.

    Args:
        pool: the candidates of a step.
        text: the tokens after the root.
    """
    right, node = set[int](), ROOT
    for token in text:
        child = pool.builder.child(node, token)
        if child is None:
            break
        right.add(child)
        node = child
    for each in range(1, len(pool)):
        pool.path[each] = pool.probabilities[each] = float(each in right)
    pool._choice = None
    return [1.0] * len(right)


@contextmanager
def known_acceptance() -> Iterator[None]:
    """``auto`` knows which of its candidates are right, once it has all of them.

    Copies have no discount: how far one goes on is known.
    """
    grow, begun = Auto.grow, list[Any]()
    prefill = ReplayTarget.prefill

    def noted(self: Any, *given: Any) -> Any:
        begun[:] = [self]
        return prefill(self, *given)

    def informed(self: Auto, growth: Growth, state: None) -> Generator[Any, Any, Any]:
        growing = grow(self, growth, state)
        try:
            query = next(growing)
            while True:
                if isinstance(query, Bid):
                    (text,) = begun[0]._slots.values()
                    values = reveal(query.report.candidates, text.text.paths.main[text.root + 1 :])
                    query = replace(query, values=[query.report.token_weight * v for v in values])
                query = growing.send((yield query))
        except StopIteration as end:
            return end.value

    def undiscounted(*_: Any) -> float:
        return 1.0

    with ExitStack() as stack:
        for owner, name, value in (
            (ReplayTarget, "prefill", noted),
            (Auto, "grow", informed),
            (Pool, "discount", undiscounted),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield


@contextmanager
def whole_search() -> Iterator[None]:
    """``auto`` keeps unlikely candidates, and four times as many."""
    with ExitStack() as stack:
        for module, name, value in (
            (policy, "_POOL", 4 * policy._POOL),
            (policy, "_REACH", 1e-6),
            (tuner, "_LOWEST", 1e-6),
            (tuner, "_HIGHEST", 1e-6),
            (tuner, "_SELDOM", 1),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield


@contextmanager
def both() -> Iterator[None]:
    """Known acceptance of all candidates."""
    with known_acceptance(), whole_search():
        yield


@contextmanager
def nothing() -> Iterator[None]:
    """``auto`` as it is."""
    yield


ORACLES = {
    "auto": nothing,
    "acceptance": known_acceptance,
    "search": whole_search,
    "both": both,
}


def perfect(costs: StepCosts, load: BatchLoad) -> dict[str, float]:
    """The figures of a chain that is always right, of the length that pays most."""
    at = of_sequence(costs, load.batch, load.context)
    found = {n: (n + 1) * at.step(1) / at.step(1 + n) for n in range(LONGEST + 1)}
    best = max(found, key=found.__getitem__)
    return {"speedup": found[best], "mean_acceptance_length": best + 1.0, "drafted_per_step": best}


def free(costs: StepCosts, load: BatchLoad) -> StepCosts:
    """The costs with verified nodes that cost nothing."""
    plain = costs.target.seconds(load.batch, load.batch * load.context, load.batch)
    return replace(costs, target=Curve((1, 2), (plain, plain)), node=0.0)


def replayed(
    recording: Recording, one: ReplayMethod, costs: StepCosts, load: BatchLoad, live: PricedHost
) -> dict[str, float]:
    """Expected speed-up, tokens and nodes a step over all prompts."""
    planned = of_sequence(costs, load.batch, load.context)
    replayer = Replayer(recording, live.priced(planned), planned)
    steps: list[StepWork] = []
    for prompt in recording.prompts:
        steps += replayer.replay(one, prompt).steps
    found = speed(steps, costs, load, alike=one.method.policy.weighs_costs)
    return {
        "speedup": found.speedup,
        "mean_acceptance_length": found.mean_acceptance_length,
        "drafted_per_step": found.drafted_per_step,
    }


def limits(
    recording: Recording,
    one: ReplayMethod,
    costs: StepCosts,
    load: BatchLoad,
    live: PricedHost,
    title: str,
) -> dict[str, dict[str, float]]:
    """Figures by perfect part; each that begins is printed behind the title."""
    parts: dict[str, dict[str, float]] = {}
    for name, oracle in ORACLES.items():
        click.echo(f"{title}: {name}", err=True)
        with oracle():
            parts[name] = replayed(recording, one, costs, load, live)
    click.echo(f"{title}: cost", err=True)
    return {
        **parts,
        "candidates": perfect(costs, load),
        "cost": replayed(recording, one, free(costs, load), load, live),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    asked.add_argument("recordings", nargs="+", type=Path)
    asked.add_argument("--model", required=True)
    asked.add_argument("--method", default="auto:layout=ranked")
    asked.add_argument("--costs", type=Path, default=Path(__file__).with_name("step_costs.json"))
    asked.add_argument("--batches", default="1,16")
    asked.add_argument("--context", type=int, default=400, help="cached tokens of each sequence")
    options = asked.parse_args()
    costs = read_costs(options.costs)
    recordings, live = recorded(options.recordings, options.model, costs)
    loads = [BatchLoad(int(batch), options.context) for batch in options.batches.split(",")]
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for path, recording in zip(options.recordings, recordings, strict=True):
        chosen = equipped(method(options.method), recording.model.fingerprint).method
        one = replay_method(chosen, recording.model.info())
        by_batch = found[path.stem] = {}
        try:
            for load in loads:
                title = f"{path.stem}, batch {load.batch}"
                by_batch[str(load.batch)] = limits(recording, one, costs, load, live, title)
        finally:
            write(path, recording)
    origin = provenance(
        model=facts(recordings[0]),
        settings={
            "answers": answers_by_name(options.recordings, recordings),
            "method": options.method,
            "costs": costs.to_json(),
            "context": options.context,
        },
        sets=[],
    )
    json.dump({"provenance": origin, "oracles": found}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
