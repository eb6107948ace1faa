"""Replays ``auto`` with each tuning constant neutralised: which of them pay?

A constant is set to the value at which its mechanism does nothing (:data:`NEUTRAL`), and the
recordings of ``draftwood record`` are decoded again at given step costs. A search for candidates
takes :data:`SEARCH` seconds a request, and half as long again to learn from. Constants that act on
measured times (``costs/``) or on layouts that a replay refuses cannot be judged here.

    python runs/smollm2/auto_constants.py RECORDING... --out FILE [--batch 1,4]
        [--method auto:shipped=table:neural=] [--costs FILE] [--model NAME]

Every result is added to ``--out`` at once; a second call goes on from there. A change is that of
tokens per second over all groups of prompts, with a 95 % bootstrap interval over them. The
method has what is shipped for the recorded model. ``--model`` asks the model for rows that the
recordings lack, such as those of its head (``--method auto:layout=ranked``); then one prompt at a
time is decoded. The default costs are those of SmolLM2-135M in bfloat16 on two CPU cores with AMX.
"""

import argparse
import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import torch

from draftwood.costs.costs_file import read_costs
from draftwood.costs.curve import StepCosts
from draftwood.costs.fixed import FixedCosts
from draftwood.engine.engine import Engine
from draftwood.engine.model_free_host import ModelFreeHost
from draftwood.engine.request import Request, Stepped, checked
from draftwood.engine.stats import StepStats
from draftwood.files import read_json, write_json
from draftwood.lab.replay.file import read, write
from draftwood.lab.replay.hosts import PricedHost
from draftwood.lab.replay.recording import RecordedPrompt, Recording
from draftwood.lab.replay.replayer import ArgmaxSampler, Replayer
from draftwood.lab.replay.substitute import harvest_accepted, replay_method
from draftwood.lab.replay.target import ReplayTarget
from draftwood.methods import method
from draftwood.methods.equip import equipped
from draftwood.methods.recipe import Method
from draftwood.policies.auto import features
from draftwood.protocols import Feature
from runs.smollm2.recorded import recorded

AUTO = "draftwood.policies.auto."
NEVER, EXACT = 1e12, 1e-9
SEARCH = 5e-4
"""Seconds to search for the candidates of a request."""

LEARNING = 1.5
"""Time to search and to learn from the candidates, over the time to search."""


def without(name: str) -> Callable[..., Any]:
    """Features of which one is always in its first bin."""
    strides = features._strides

    def flat(given: tuple[Feature, ...]) -> Any:
        return tuple(
            (Feature(name, (math.inf,)) if each.name == name else each, stride)
            for each, stride in strides(given)
        )

    return flat


NEUTRAL: dict[str, tuple[str, dict[str, object]]] = {
    "calibration.HALF_LIFE": ("calibration", {"Calibration.__init__.__defaults__": NEVER}),
    "calibration._OWN": ("calibration", {"_OWN": EXACT}),
    "calibration._PRIOR": ("calibration", {"_PRIOR": NEVER}),
    "calibration._PRIOR_OF_ALL": ("calibration", {"_PRIOR_OF_ALL": NEVER}),
    "calibration._START": ("calibration", {"_START": (EXACT, EXACT / 4)}),
    "calibration._SURE": ("calibration", {"_SURE": (EXACT, 1 - EXACT)}),
    "copies._FREE": ("copies", {"_FREE": -NEVER}),
    "features._MATCHES": ("features", {"_strides": without("match_length")}),
    "features._SCORES": ("features", {"_strides": without("score")}),
    "features._RANKS": ("features", {"_strides": without("rank")}),
    "policy._REACH": ("policy", {"_REACH": EXACT}),
    "policy._POOL": ("policy", {"_POOL": 1000}),
    "tuner._HALF_LIFE": ("tuner", {"_HALF_LIFE": NEVER}),
    "tuner._LOWEST": ("tuner", {"_LOWEST": EXACT}),
    "tuner._HIGHEST": ("tuner", {"_HIGHEST": 1.0}),
    "tuner._SELDOM": ("tuner", {"_SELDOM": 1}),
    "tuner._SMOOTHING": ("tuner", {"_SMOOTHING": 1.0}),
    "tuner._GAIN": ("tuner", {"_GAIN": 1.0}),
    "tuner._DRAFTER_GAIN": ("tuner", {"_DRAFTER_GAIN": (1.0, 1.0, 1.0)}),
    "tuner._GAIN_WEIGHT": ("tuner", {"_GAIN_WEIGHT": EXACT}),
    "tuner._GAIN_HALF_LIFE": ("tuner", {"_GAIN_HALF_LIFE": NEVER}),
    "tuner._FIRST_PRICE": ("tuner", {"_FIRST_PRICE": EXACT}),
    "tuner._WEIGHT": ("tuner", {"_WEIGHT": EXACT}),
    "tuner._ASKED": ("tuner", {"_ASKED": 1.0}),
    "tuner._ASKED_WEIGHT": ("tuner", {"_ASKED_WEIGHT": NEVER}),
    "tuner._FORGOTTEN": ("tuner", {"_FORGOTTEN": 0.0}),
    "tuner._PAYS": ("tuner", {"_PAYS": 0.0}),
}


class SearchedCosts(FixedCosts):
    """Fixed step costs, and a search that takes :data:`SEARCH` seconds a request."""

    def search(self, batch: int) -> float:
        """Seconds of a batch's search."""
        return SEARCH * batch


class SearchedHost(ModelFreeHost):
    """A host without models whose searches take time."""

    def share(self, key: Any, make: Callable[[], Any]) -> Any:
        """See :class:`ModelFreeHost`."""
        found = super().share(key, make)
        return SearchedCosts(self.costs) if isinstance(found, FixedCosts) and self.costs else found


@dataclass(frozen=True)
class Cell:
    """A recording, decoded by a method in batches, at some costs."""

    path: Path
    recording: Recording
    method: Method
    costs: StepCosts
    batch: int
    live: PricedHost | None

    def groups(self) -> list[tuple[int, float]]:
        """Tokens and seconds of each group of prompts."""
        prompts = self.recording.prompts
        starts = range(0, len(prompts) - self.batch + 1, self.batch)
        run = self._alone if self.live is not None else self._together
        return [run(prompts[start : start + self.batch]) for start in starts]

    def _together(self, prompts: list[RecordedPrompt]) -> tuple[int, float]:
        recording, settings = self.recording, self.recording.settings
        info = recording.model.info()
        texts = {k: text for prompt in prompts for k, text in prompt.by_context().items()}
        target = ReplayTarget(info, texts, rejected=False)
        host = SearchedHost(info, self.costs)
        engine = Engine(target, self.method, max_batch=self.batch, host=host)
        requests = [
            Request(
                prompt.texts[0].prompt,
                settings.max_new_tokens,
                eos=frozenset(settings.eos),
                sampler=ArgmaxSampler(settings.temperature),
            )
            for prompt in prompts
        ]
        steps: dict[int, list[StepStats]] = {}  # of one step, which share their times
        for event in checked(engine.stream(requests)):
            if isinstance(event, Stepped):
                steps.setdefault(id(event.stats.times), []).append(event.stats)
        seconds = sum(map(self._seconds, steps.values()))
        return sum(each.committed for step in steps.values() for each in step), seconds

    def _seconds(self, step: list[StepStats]) -> float:
        sizes = [each.tree.drafted for each in step]
        searched = sum(each.prediction is not None for each in step)
        return (
            self.costs.target.seconds(len(step) + sum(sizes), 0, len(step))
            + self.costs.fixed
            + self.costs.sequence * (len(step) - 1)
            + self.costs.node * sum(sizes)
            + SEARCH * LEARNING * searched
        )

    def _alone(self, prompts: list[RecordedPrompt]) -> tuple[int, float]:
        replayer = Replayer(self.recording, self.live, self.costs)
        one = replay_method(self.method, self.recording.model.info())
        costs, tokens, seconds = self.costs, 0, 0.0
        for prompt in prompts:
            for step in replayer.replay(one, prompt).steps:
                tokens += step.committed
                seconds += costs.target.seconds(1 + step.nodes, 0, 1) + costs.fixed
                seconds += costs.node * step.nodes
                levels = ((costs.drafters[s], n) for s, ns in step.levels.items() for n in ns)
                seconds += sum(curve.seconds(n) for curve, n in levels)
        return tokens, seconds


@contextmanager
def neutral(name: str) -> Iterator[None]:
    """The constant of that name without effect; ``""``: all as they are."""
    file, values = NEUTRAL[name] if name else ("", {})
    with ExitStack() as stack:
        for attribute, value in values.items():
            module = importlib.import_module(AUTO + file)
            if attribute.startswith("Calibration."):
                defaults = (None, value, module.SOURCES, None)
                init: Any = module.Calibration.__init__
                stack.enter_context(patch.object(init, "__defaults__", defaults))
            else:
                stack.enter_context(patch.object(module, attribute, value))
        features.coding.cache_clear()
        stack.callback(features.coding.cache_clear)
        yield


def change(plain: list[Any], other: list[Any]) -> tuple[float, float, float]:
    """Relative change of tokens per second, and its 95 % interval over groups."""
    found = np.array([plain, other], dtype=np.float64)
    draws = np.random.default_rng(0).integers(found.shape[1], size=(2000, found.shape[1]))

    def speed(part: Any) -> Any:
        return part[..., 0].sum(-1) / part[..., 1].sum(-1)

    ratios = speed(found[1][draws]) / speed(found[0][draws]) - 1
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(speed(found[1]) / speed(found[0]) - 1), float(low), float(high)


def main() -> None:
    """Run what is missing, and print the table."""
    asked = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    asked.add_argument("recordings", nargs="+", type=Path)
    costs_file = Path(__file__).with_name("step_costs.json")
    asked.add_argument("--costs", type=Path, default=costs_file)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--batch", default="1")
    asked.add_argument("--method", default="auto:shipped=table:neural=")
    asked.add_argument("--model")
    options = asked.parse_args()
    torch.set_num_threads(1)
    done: dict[str, Any] = read_json(options.out) if options.out.exists() else {}
    costs, chosen = read_costs(options.costs), method(options.method)
    live = None
    if options.model:
        recordings, live = recorded(options.recordings, options.model, costs)
    else:
        recordings = [read(path) for path in options.recordings]
    for path, recording in zip(options.recordings, recordings, strict=True):
        whole = equipped(chosen, recording.model.fingerprint).method
        adapted = whole if live is not None else harvest_accepted(whole)
        before = recording.size
        for batch in map(int, options.batch.split(",")):
            cell = Cell(path, recording, adapted, costs, batch, live)
            key = f"{path.stem}, {options.method}, batch {batch}"
            for name in ("", *NEUTRAL):
                if name not in done.setdefault(key, {}):
                    with neutral(name):
                        done[key][name] = cell.groups()
                    write_json(options.out, done)
        if recording.size > before:
            write(path, recording)
    for key, found in done.items():
        click.echo(f"\n{key}: {_speed(found['']):.2f} tok/s")
        rows = [(name, *change(found[""], found[name])) for name in NEUTRAL if name in found]
        for name, mean, low, high in sorted(rows, key=lambda row: row[1]):
            click.echo(f"  {name:34} {mean:+7.2%}  [{low:+.2%}, {high:+.2%}]")


def _speed(groups: list[Any]) -> float:
    tokens, seconds = (sum(column) for column in zip(*groups, strict=True))
    return float(tokens / seconds)


if __name__ == "__main__":
    main()
