"""What a seed means: the same request has the same tokens in any batch, at any load, anywhere.

With ranked drafts, and with those that are drawn with the target's own numbers, these are plain
decoding's; with drafts that are drawn with numbers of their own they are the method's. Models are
tiny and in float32, as forwards of other shapes round otherwise, and what nearly ties may then
change.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Finished, Request
from draftwood.methods import method
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
from tests.factories.markov_target import FakeHost, MarkovTarget, SteadyCosts, made_head
from tests.factories.medusa_heads import made_heads
from tests.factories.tiny_llama import tiny_llama

OWN = [
    "auto",
    "auto:drafter=model",
    "auto:drafter=model:budget=5:level=3",
    "auto:drafter=model:layout=ranked",
    "auto:neural=draft+eagle3",
    "auto:neural=medusa+draft:layout=ranked",
    "talon",
    "goose",
]
"""Methods whose tokens are plain decoding's."""

SAMPLED = [
    "traversal",
    "rrsw",
    "specinfer",
    "block",
    "mixed",
    "traversal-talon",
    "traversal-dynatree",
    "goose-sampled",
]
"""Methods whose tokens depend on what was drafted."""

ELSEWHERE = ["auto:drafter=model", "traversal", "block", "traversal-dynatree", "goose-sampled"]

HEATS = (1.0, 0.7, 1.3, 1.0)


def requests() -> list[Request]:
    return [
        Request([5 + i, 9, 2, 7, 5, 9, 2][: 4 + i], 14 + 4 * i, SamplingParams(heat, seed=11 + i))
        for i, heat in enumerate(HEATS)
    ]


HEADS: dict[str, Callable[..., object]] = {"eagle3": made_head, "medusa": partial(made_heads, 3)}
"""Random heads, by the source that they answer; each is for a target."""


@cache
def models() -> tuple[ModelHost, Runner, object]:
    """A target, and a draft model that agrees with it to some extent."""
    target, draft = tiny_llama(), tiny_llama()
    other = dict(tiny_llama(seed=3).named_parameters())
    for name, weight in draft.named_parameters():
        weight.data.lerp_(other[name].data, 0.1)
    runner = attach(target, self_test=False)
    return ModelHost(runner), runner, draft


def engine(name: str, max_batch: int) -> Engine:
    host, target, draft = models()
    options: dict[str, object] = {} if name in {"ar", "auto", "goose"} else {"draft": draft}
    kind = next((kind for kind in HEADS if kind in name), None)
    if kind is not None:
        options["head"] = HEADS[kind](target.info, seed=1)
    return Engine(target, method(name, **options), max_batch=max_batch, host=host)


def tokens(name: str, max_batch: int) -> list[list[int]]:
    return [list(c.tokens) for c in engine(name, max_batch).generate(requests())]


@cache
def alone(name: str) -> list[list[int]]:
    """In batches of one."""
    return tokens(name, 1)


@pytest.mark.parametrize("name", OWN)
def test_these_have_the_tokens_of_plain_decoding(name: str) -> None:
    assert alone(name) == alone("ar")


@pytest.mark.parametrize("name", [*OWN, *SAMPLED])
def test_batch_mates_change_no_token(name: str) -> None:
    assert tokens(name, 4) == alone(name)


@pytest.mark.parametrize(
    "name",
    ["auto:drafter=model", "auto:neural=draft+eagle3", "traversal-dynatree", "goose-sampled"],
)
def test_load_changes_no_token(name: str) -> None:
    """Others wait, come and go meanwhile, and a request before has taught the engine."""
    busy = engine(name, 3)
    busy.generate([Request([3, 3, 3], 9, SamplingParams(1.0, seed=99))])
    numbers = [busy.add(request) for request in requests()]
    others: list[int] = []
    found: dict[int, list[int]] = {}
    for step in range(200):
        if step in {2, 3, 7}:
            others.append(busy.add(Request([9, step], 12, SamplingParams(0.0))))
        if step == 9:
            busy.cancel(others[0])
        for event in busy.step():
            if isinstance(event, Finished):
                found[event.request_id] = list(event.completion.tokens)
        if not busy.busy:
            break
    assert [found[number] for number in numbers] == alone(name)


@pytest.mark.slow
def test_another_process_yields_the_same_tokens() -> None:
    code = (
        "import json, tests.test_reproducible as t; "
        "print(json.dumps({name: t.alone(name) for name in t.ELSEWHERE}))"
    )
    changed = {**os.environ, "PYTHONHASHSEED": "1234", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        env=changed,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {name: alone(name) for name in ELSEWHERE}


@dataclass
class PricedHost(FakeHost):
    """A machine on which the target's forward has given costs."""

    steep: float = 0.0

    def costs(self, key: CostsOf) -> LiveCosts:
        level = Curve((1, 64), (0.02, 0.03))
        forward = Curve((1, 101), (1.0, 1.0 + 100 * self.steep))
        return SteadyCosts(StepCosts(forward, {source: level for source, _ in key.drafters}))


def on_machine(name: str, steep: float) -> list[tuple[int, ...]]:
    target = MarkovTarget(sharpness=1.0)
    host = PricedHost(target.info, steep)
    asked = [Request([3, 1, 4 + i], 24, SamplingParams(1.0, seed=i)) for i in range(3)]
    return [c.tokens for c in Engine(target, method(name), host=host).generate(asked)]


@pytest.mark.parametrize(
    "name",
    [
        "auto",
        "auto:drafter=model",
        "auto:drafter=eagle3",
        "auto:neural=draft+eagle3",
        "adaptive-chain:warmup=0",
    ],
)
def test_a_machine_with_other_costs_yields_the_same_tokens(name: str) -> None:
    assert on_machine(name, 0.0001) == on_machine(name, 0.05) == on_machine("ar", 0.0)


@pytest.mark.parametrize("layout", ["drawn", "either"])
def test_where_a_seed_does_not_decide_other_costs_yield_other_tokens(layout: str) -> None:
    """The negative control: this is what the default layout is for."""
    name = f"auto:drafter=model:layout={layout}"
    assert on_machine(name, 0.0001) != on_machine(name, 0.05)
