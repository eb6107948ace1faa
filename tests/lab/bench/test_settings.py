"""What a run may be set to, and what is recorded of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.settings import Settings
from draftwood.sampling.sampler import SamplingParams


def made(**values: Any) -> Settings:
    return Settings(prompts=(Path("p.jsonl"),), methods=("pld",), **values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"seeds": (1, 0, 1)}, "seed 1 is named twice"),
        ({"seeds": (0, -1)}, "seed -1 is out of range"),
        ({"seeds": (2**64,)}, "out of range"),
    ],
)
def test_refuses_what_cannot_be(values: dict[str, Any], said: str) -> None:
    with pytest.raises(DraftwoodError, match=said):
        made(**values)


def test_every_setting_is_recorded_but_the_seed_that_nothing_uses() -> None:
    found = made(seeds=(3, 1), draft="d", sampling=SamplingParams(temperature=0.5, seed=9))
    recorded: dict[str, Any] = json.loads(json.dumps(found.recorded()))
    assert set(recorded) == set(vars(found))
    assert recorded["seeds"] == [3, 1]
    assert recorded["draft"] == "d"
    assert recorded["prompts"] == ["p.jsonl"]
    assert recorded["sampling"]["temperature"] == 0.5
    assert "seed" not in recorded["sampling"]
