"""``auto`` against the rules of other engines: replays of a recording with each of them.

    python runs/smollm2/rivals.py RECORDING... --model smollm2 [--head HEAD]

The rivals are vLLM's adaptive verification (``adaptive-chain``), SGLang's n-gram trie
(``ngram-trie``), as it is and drafting from the whole prompt, too, and onnxruntime-genai's adaptive
width (``throughput-chain``). Each is compared with ``auto`` with the
head and without it, at SmolLM2's own step costs and at those of larger models on GPUs, estimated
from data sheets, by batch size.

What has been found is kept beside the recording (:mod:`runs.smollm2.kept`): a call goes on where
the last one stopped, and calls for one recording each may run side by side.

A figure is ``auto``'s expected tokens per second over the rival's: of each set of prompts with a
95 % interval over the prompts, and the mean of the sets. For a batch, trees are planned as by
``draftwood replay --batch`` (docs/replay.md), and steps of one prompt are decoded together: equal
ones where trees are planned, and random ones otherwise. ``queues`` has the ratio for all prompts,
in random order, decoded in real batches as by ``draftwood replay --together``: requests of a batch
are unlike, have their own contexts, and compete for nodes. Prints one JSON object.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.costs.costs_file import read_costs
from draftwood.costs.curve import StepCosts
from draftwood.lab.bench.intervals import ratio_intervals
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.replay.figures import BatchLoad, seconds_together, speed
from draftwood.lab.replay.hosts import PricedHost
from draftwood.lab.replay.pricing import HEAD, expected_costs, of_sequence
from draftwood.lab.replay.recording import RecordedPrompt, Recording
from draftwood.lab.replay.replayer import Replayer
from draftwood.lab.replay.substitute import ReplayMethod, replay_method
from draftwood.methods import method
from draftwood.methods.equip import equipped
from draftwood.protocols.recipe import DRAFT
from runs.smollm2.kept import Kept, KeptReplays
from runs.smollm2.recorded import answers_by_name, facts, recorded

AUTOS = ("auto{head}:layout=ranked", "auto:shipped=table:neural=")
RIVALS = (
    # Its estimate is taken as trained after 100 steps, so that little of a replay is its warm-up.
    "adaptive-chain{head}:warmup=1",
    "ngram-trie",
    "ngram-trie:trie.prompt=true",
    "throughput-chain",
)

Seconds = Mapping[str, Sequence[float]]
"""Expected seconds of each prompt, by set."""

Ratios = dict[str, dict[str, dict[str, Any]]]
"""Tokens per second of ``auto`` over a rival's, by rival, ``auto`` and batch size."""


def spelt(names: Sequence[str], head: str | None) -> list[str]:
    """The methods with the head; without one, those that need it are left out."""
    with_head = "" if head is None else f":head={head}"
    return [
        name.format(head=with_head)
        for name in names
        if head is not None or not name.startswith("adaptive")
    ]


def seconds(
    recording: Recording, one: ReplayMethod, costs: StepCosts, load: BatchLoad, live: PricedHost
) -> Seconds:
    """Expected seconds of each prompt, one of a batch of prompts like it, by set."""
    planned = of_sequence(costs, load.batch, load.context)
    alike = one.method.policy.weighs_costs
    replayer = Replayer(recording, live.priced(planned), planned)
    found: dict[str, list[float]] = {}
    for prompt in recording.prompts:
        steps = replayer.replay(one, prompt).steps
        if not steps:  # an answer of one token
            continue
        committed = sum(step.committed for step in steps)
        rate = speed(steps, costs, load, alike=alike).tokens_per_second / load.batch
        found.setdefault(prompt.set, []).append(committed / rate)
    return found


def compared(auto: Seconds, rival: Seconds) -> dict[str, Any]:
    """The ratio of tokens per second: the mean of the sets, and that of each set.

    Both have generated the same tokens, so it is the ratio of the rival's seconds to ``auto``'s.
    """
    sets = {}
    for name, own in auto.items():
        numerators, denominators = (np.array(each)[:, None] for each in (rival[name], own))
        [sets[name]] = ratio_intervals(numerators, denominators)
    values = [each.value for each in sets.values() if each.value is not None]
    return {
        "mean": sum(values) / len(values),
        "sets": {name: asdict(each) for name, each in sets.items()},
    }


def in_random_order(prompts: Sequence[RecordedPrompt]) -> list[RecordedPrompt]:
    """The prompts in an order that is the same each time, without those that share a context."""
    order: list[RecordedPrompt] = []
    seen: set[tuple[int, ...]] = set()
    for prompt in prompts:
        contexts = prompt.by_context().keys()
        if seen.isdisjoint(contexts):
            order.append(prompt)
            seen |= contexts
    random.Random(0).shuffle(order)
    return order


def queue_seconds(
    recording: Recording, one: ReplayMethod, costs: StepCosts, places: int, live: PricedHost
) -> float:
    """Expected seconds of all prompts, decoded in batches of at most so many."""
    replayer = Replayer(recording, live.priced(costs), costs)
    run = replayer.replay_together(one, in_random_order(recording.prompts), places)
    return seconds_together(run.steps, costs)


@dataclass(frozen=True)
class Comparison:
    """The comparison of ``auto`` with its rivals on a recording at given costs.

    Attributes:
        recording: gains the rows that the model is asked for.
        costs: step costs.
        live: the recorded model's host.
        head: of ``auto`` and of the rival that needs one.
        title: printed before each replay that begins.
        kept: figures that have been found before.
    """

    recording: Recording
    costs: StepCosts
    live: PricedHost
    head: str | None
    title: str
    kept: Kept

    def alike(self, loads: Sequence[BatchLoad]) -> Ratios:
        """Batches of requests that are alike: ratios of each set of prompts, and their mean."""
        find = {
            str(load.batch): (f"at batch {load.batch}", partial(self._seconds, load))
            for load in loads
        }
        return self._compared(find, compared)

    def queues(self, places: Sequence[int]) -> Ratios:
        """Real batches of all prompts: ratios."""
        find = {
            str(each): (f"in batches of {each}", partial(self._queue_seconds, each))
            for each in places
        }
        return self._compared(find, lambda auto, rival: rival / auto)

    def _seconds(self, load: BatchLoad, one: ReplayMethod) -> Seconds:
        return seconds(self.recording, one, self.costs, load, self.live)

    def _queue_seconds(self, places: int, one: ReplayMethod) -> float:
        return queue_seconds(self.recording, one, self.costs, places, self.live)

    def _compared(
        self,
        find: Mapping[str, tuple[str, Callable[[ReplayMethod], Any]]],
        compare: Callable[[Any, Any], Any],
    ) -> Ratios:
        info, fingerprint = self.recording.model.info(), self.recording.model.fingerprint

        def replays(names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
            for name in spelt(names, self.head):
                one = replay_method(equipped(method(name), fingerprint).method, info)
                yield (
                    name,
                    {
                        batch: self.kept.once(f"{self.title}: {name} {how}", partial(replay, one))
                        for batch, (how, replay) in find.items()
                    },
                )

        autos = dict(replays(AUTOS if self.head is not None else AUTOS[1:]))
        return {
            rival: {
                auto: {batch: compare(own[batch], found[batch]) for batch in found}
                for auto, own in autos.items()
            }
            for rival, found in replays(RIVALS)
        }


def step_costs(path: Path, gpus: str, shapes: str) -> dict[str, StepCosts]:
    """Step costs by name: those of the file, and those of each GPU and shape."""
    found = {"own costs": read_costs(path)}
    for gpu in filter(None, gpus.split(",")):
        for shape in shapes.split(","):
            found[f"{gpu}, {shape}"] = expected_costs(gpu, shape, HEAD, [DRAFT])
    return found


def settings_of(
    head: str | None, costs: Mapping[str, StepCosts], context: int
) -> dict[str, object]:
    """What figures of replays depend on, beside the recording and the method."""
    found = {name: each.to_json() for name, each in costs.items()}
    return {"head": head, "costs": found, "context": context}


def main() -> None:
    asked = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    asked.add_argument("recordings", nargs="+", type=Path)
    asked.add_argument("--model", required=True)
    asked.add_argument("--head")
    asked.add_argument("--costs", type=Path, default=Path(__file__).with_name("step_costs.json"))
    asked.add_argument("--gpus", default="h100")
    asked.add_argument("--shapes", default="1b,8b")
    asked.add_argument("--batches", default="1,16,64")
    asked.add_argument("--queues", default="4,16", help="sizes of real batches")
    asked.add_argument("--context", type=int, default=400, help="cached tokens of each sequence")
    options = asked.parse_args()
    costs = step_costs(options.costs, options.gpus, options.shapes)
    recordings, live = recorded(options.recordings, options.model, costs["own costs"])
    loads = [BatchLoad(int(batch), options.context) for batch in options.batches.split(",")]
    settings = settings_of(options.head, costs, options.context)
    places = [int(each) for each in options.queues.split(",")]
    found: dict[str, dict[str, dict[str, Ratios]]] = {"rivals": {}, "queues": {}}
    for path, recording in zip(options.recordings, recordings, strict=True):
        kept = KeptReplays("rivals", path, recording, settings)
        for study in found.values():
            study[path.stem] = {}
        for name, each in costs.items():
            title = f"{path.stem}, {name}"
            one = Comparison(recording, each, live, options.head, title, kept)
            found["rivals"][path.stem][name] = one.alike(loads)
            found["queues"][path.stem][name] = one.queues(places)
    origin = provenance(
        model=facts(recordings[0]),
        settings={"answers": answers_by_name(options.recordings, recordings), **settings},
        sets=[],
    )
    json.dump({"provenance": origin, **found}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
