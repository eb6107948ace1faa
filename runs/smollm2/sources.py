"""What each source of ``auto`` is worth, and a tree against a chain: replays of recordings.

    python runs/smollm2/sources.py STUDY RECORDING... --model smollm2 [--head HEAD]

STUDY is one of

* ``left_out``: ``auto`` with all sources, and with each of them left out;
* ``shapes``: trees and chains of the same sources, of one of them and of all.

Every method is replayed with trees of 8, 16, 32 and 60 nodes, all of which are drafted, for the
accepted tokens a step; and at SmolLM2's own step costs and at those of larger models on an H100,
estimated from data sheets, by batch size, for expected tokens a second: there ``auto`` drafts what
pays. A memory of earlier requests is no source here, as a replay begins each prompt with none
(``runs/smollm2/memory.py`` measures it). Prints one JSON object.

What has been found is kept beside the recording (:mod:`runs.smollm2.kept`): a call goes on where
the last one stopped, and calls for one recording each may run side by side.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from draftwood.costs.costs_file import read_costs
from draftwood.costs.curve import StepCosts
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.replay.figures import BatchLoad
from draftwood.lab.replay.hosts import PricedHost
from draftwood.lab.replay.recording import Recording
from draftwood.lab.replay.replayer import Replayer
from draftwood.lab.replay.substitute import ReplayMethod, replay_method
from draftwood.methods import method
from draftwood.methods.equip import equipped
from runs.smollm2.kept import Kept, KeptReplays
from runs.smollm2.recorded import answers_by_name, facts, recorded
from runs.smollm2.rivals import compared, seconds, settings_of, step_costs

FREE = Path(__file__).parents[1] / "free_nodes.json"
"""Step costs at which every candidate is drafted."""

SIZES = (8, 16, 32, 60)
"""Nodes of a tree, the root excluded."""

HEAD, NO_HEAD = ":head={}:layout=ranked", ":neural="

ALL = "auto{head}:shipped=table:also=suffix"
"""All sources that need nothing of other requests: context, table, suffix and head."""

LEFT_OUT = {
    "all": ALL,
    "without context": f"{ALL}:chain=",
    "without adjacency": "auto{head}:shipped=calibration:also=suffix:table=",
    "without its prepared table": "auto{head}:shipped=calibration:also=suffix",
    "without suffix": "auto{head}:shipped=table",
    "without head": f"auto{NO_HEAD}:shipped=table:also=suffix",
}
SHAPES = {
    f"{name}, {shape}": f"{text}:shape={shape}"
    for name, text in {
        "all": ALL,
        "head": "auto{head}:shipped=calibration:chain=:table=",
        "context": f"auto{NO_HEAD}:shipped=calibration:table=",
        "adjacency": f"auto{NO_HEAD}:shipped=table:chain=",
        "context and adjacency": f"auto{NO_HEAD}:shipped=table",
    }.items()
    for shape in ("tree", "chain")
}
STUDIES: Mapping[str, Mapping[str, str]] = {"left_out": LEFT_OUT, "shapes": SHAPES}


def spelt(study: str, head: str | None) -> dict[str, str]:
    """The methods of a study by name; without a head, those that differ by it are left out."""
    given = NO_HEAD if head is None else HEAD.format(head)
    return {
        name: text.format(head=given)
        for name, text in STUDIES[study].items()
        if head is not None or "head" not in name
    }


def accepted(
    recording: Recording, one: ReplayMethod, costs: StepCosts, live: PricedHost
) -> dict[str, float]:
    """Committed tokens a step, by set."""
    replayer = Replayer(recording, live.priced(costs), costs)
    steps: dict[str, list[int]] = {}
    for prompt in recording.prompts:
        found = [step.committed for step in replayer.replay(one, prompt).steps]
        steps.setdefault(prompt.set, []).extend(found)
    return {name: round(sum(each) / len(each), 3) for name, each in steps.items() if each}


def studied(
    recording: Recording,
    methods: Mapping[str, str],
    costs: Mapping[str, StepCosts],
    loads: Sequence[BatchLoad],
    live: PricedHost,
    kept: Kept,
) -> dict[str, Any]:
    """By method: accepted tokens a step by size, and tokens a second relative to the first's."""
    info, fingerprint = recording.model.info(), recording.model.fingerprint
    free = read_costs(FREE)
    found: dict[str, Any] = {}
    first: dict[tuple[str, int], Any] = {}
    for name, text in methods.items():
        own = replay_method(equipped(method(text), fingerprint).method, info)
        sizes = {}
        for size in SIZES:
            whole = equipped(method(f"{text}:budget={size}"), fingerprint).method
            one = replay_method(whole, info)
            find = partial(accepted, recording, one, free, live)
            sizes[str(size)] = kept.once(f"{name}: {size} nodes", find)
        rates: dict[str, dict[str, Any]] = {}
        for place, each in costs.items():
            for load in loads:
                own_seconds = kept.once(
                    f"{name}: {place}, batch {load.batch}",
                    partial(seconds, recording, own, each, load, live),
                )
                against = first.setdefault((place, load.batch), own_seconds)
                ratio = compared(own_seconds, against)
                rates.setdefault(place, {})[str(load.batch)] = ratio
        found[name] = {"method": text, "tokens_a_step": sizes, "speed": rates}
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    asked.add_argument("study", choices=sorted(STUDIES))
    asked.add_argument("recordings", nargs="+", type=Path)
    asked.add_argument("--model", required=True)
    asked.add_argument("--head")
    asked.add_argument("--costs", type=Path, default=Path(__file__).with_name("step_costs.json"))
    asked.add_argument("--gpus", default="h100")
    asked.add_argument("--shapes", default="8b")
    asked.add_argument("--batches", default="1,4,16")
    asked.add_argument("--context", type=int, default=400, help="cached tokens of each sequence")
    options = asked.parse_args()
    costs = step_costs(options.costs, options.gpus, options.shapes)
    recordings, live = recorded(options.recordings, options.model, costs["own costs"])
    loads = [BatchLoad(int(batch), options.context) for batch in options.batches.split(",")]
    methods = spelt(options.study, options.head)
    settings = settings_of(options.head, costs, options.context)
    found: dict[str, Any] = {}
    for path, recording in zip(options.recordings, recordings, strict=True):
        kept = KeptReplays(options.study, path, recording, settings)
        found[path.stem] = {
            "temperature": recording.settings.temperature,
            "methods": studied(recording, methods, costs, loads, live, kept),
        }
    origin = provenance(
        model=facts(recordings[0]),
        settings={
            "answers": answers_by_name(options.recordings, recordings),
            **settings,
            "loads": [asdict(load) for load in loads],
        },
        sets=[],
    )
    json.dump({"provenance": origin, options.study: found}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
