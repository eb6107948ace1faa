"""Settings are checked, normalised values."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from draftwood.errors import DraftwoodError
from draftwood.sampling.params import SamplingParams


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"temperature": -0.1}, "temperature must be 0"),
        ({"temperature": 1e-9}, "temperature must be 0"),
        ({"temperature": math.nan}, "temperature must be a finite number"),
        ({"temperature": math.inf}, "temperature must be a finite number"),
        ({"temperature": "hot"}, "temperature must be a finite number"),
        ({"temperature": True}, "temperature must be a finite number"),
        ({"top_k": -1}, "top_k must be 0"),
        ({"top_k": 1.5}, "top_k must be an integer"),
        ({"top_p": 0.0}, "top_p must be in"),
        ({"top_p": 1.1}, "top_p must be in"),
        ({"min_p": -0.1}, "min_p must be in"),
        ({"min_p": 2}, "min_p must be in"),
        ({"repetition_penalty": 0}, "repetition_penalty must be at least 1e-05"),
        ({"presence_penalty": math.nan}, "presence_penalty must be a finite"),
        ({"frequency_penalty": None}, "frequency_penalty must be a finite"),
        ({"logit_bias": [(1, 2.0)]}, "logit_bias must map"),
        ({"logit_bias": {1: math.inf}}, "each logit_bias must be a finite"),
        ({"logit_bias": {"a": 1.0}}, "each token id of logit_bias must be an integer"),
        ({"banned_tokens": 3}, "banned_tokens must be a tuple"),
        ({"banned_tokens": (3, -1)}, "each token id of banned_tokens must be 0 or more"),
        ({"seed": -1}, "seed must be in"),
        ({"seed": 2**64}, "seed must be in"),
        ({"seed": 0.5}, "seed must be an integer"),
    ],
    ids=repr,
)
def test_bad_settings_are_refused(setting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DraftwoodError, match=sentence):
        SamplingParams(**setting)


def test_settings_are_values() -> None:
    bias = {np.int64(3): 1}
    params = SamplingParams(
        temperature=1,
        logit_bias=bias,  # type: ignore[arg-type]
        banned_tokens=[4],  # type: ignore[arg-type]
    )
    bias[np.int64(5)] = 2
    assert params == SamplingParams(1.0, logit_bias={3: 1.0}, banned_tokens=(4,))
    assert hash(params) == hash(SamplingParams(1.0, logit_bias={3: 1.0}, banned_tokens=(4,)))
    assert isinstance(params.temperature, float)
    assert isinstance(params.logit_bias, Mapping)
    assert params != SamplingParams(1.0, banned_tokens=(4,))


def test_token_ids_must_lie_in_the_vocabulary() -> None:
    SamplingParams(logit_bias={9: 1.0}, banned_tokens=(9,)).validate(10)
    for params in (SamplingParams(logit_bias={10: 1.0}), SamplingParams(banned_tokens=(10,))):
        with pytest.raises(DraftwoodError, match="names token 10, but the vocabulary ends at 9"):
            params.validate(10)
