"""Whatever a prepared table proposes, the tokens are those of plain decoding."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from draftwood.drafters.adjacency.table import PreparedTable
from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Request
from draftwood.sampling.params import SamplingParams
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.prepared_tables import prepared_table, random_rows, save_table

V = 13
PROMPTS = [[1, 5, 2, 7], [3, 3, 9], [11]]
METHODS = ("tr", "goose", "auto", "tr:adjacency.bigram=on", "goose:adjacency.shared=on")


def right(target: MarkovTarget) -> PreparedTable:
    """What the target says after each pair."""
    probs = target.table.softmax(dim=-1).numpy()
    rows = {}
    for before in range(V):
        for token in range(V):
            best = np.argsort(-probs[before, token])[:10].tolist()
            rows[before, token] = {t: float(probs[before, token, t]) for t in best}
    return prepared_table(rows, V)


def wrong(target: MarkovTarget) -> PreparedTable:
    """The tokens that the target never says, as certain ones."""
    last = target.table.argmin(dim=-1).numpy()
    return prepared_table({(b, t): {int(last[b, t]): 0.99} for b in range(V) for t in range(V)}, V)


def random_one(_: MarkovTarget) -> PreparedTable:
    return prepared_table(random_rows(np.random.default_rng(3), V, pairs=120, width=10), V)


def decoded(target: MarkovTarget, method: str, temperature: float) -> list[Completion]:
    engine = Engine(target, method, host=FakeHost(target.info))
    sampling = SamplingParams(temperature=temperature, seed=5)
    return engine.generate([Request(prompt, 30, sampling) for prompt in PROMPTS])


@pytest.mark.parametrize("make", [right, wrong, random_one])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_table_changes_no_token(
    tmp_path: Path, make: Callable[[MarkovTarget], PreparedTable], method: str, temperature: float
) -> None:
    target = MarkovTarget(V, sharpness=2.0)
    name = save_table(tmp_path / "table.safetensors", make(target))
    plain = decoded(target, "ar", temperature)
    found = decoded(target, f"{method}:adjacency.table={name}", temperature)
    assert [each.tokens for each in found] == [each.tokens for each in plain]


@pytest.mark.parametrize("method", ["goose", "tr:adjacency.bigram=on"])
def test_steps_with_the_targets_own_table_are_longer(tmp_path: Path, method: str) -> None:
    target = MarkovTarget(V, sharpness=2.0)
    steps = {}
    for make in (right, wrong):
        name = save_table(tmp_path / f"{make.__name__}.safetensors", make(target))
        found = decoded(target, f"{method}:adjacency.table={name}", 0.0)
        steps[make] = sum(each.tally.steps for each in found)
    cold = sum(each.tally.steps for each in decoded(target, method, 0.0))
    assert steps[right] < cold
    assert steps[right] < steps[wrong]
