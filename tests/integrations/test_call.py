"""Requests of a call of ``generate``."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    EosTokenCriteria,
    GenerationConfig,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
)

from draftwood.integrations.transformers.call import GenerateCall

IDS = torch.tensor([[9, 9, 1, 2], [3, 4, 5, 6]])
MASK = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


def call(*criteria: Any, processors: tuple[Any, ...] = (), **settings: Any) -> GenerateCall:
    kind: Any = GenerationConfig  # which transformers leaves untyped
    config = kind(**{"max_length": 10} | settings)
    return GenerateCall(IDS, MASK, processors, StoppingCriteriaList(criteria), config)


def test_length_and_eos_criteria_are_handled_by_the_engine() -> None:
    for request in call(MaxLengthCriteria(9), EosTokenCriteria([7, 8])).requests():
        assert request.max_new_tokens == 5
        assert request.eos == {7, 8}
        assert request.should_stop is None
        assert request.observer is None


def test_a_length_of_the_callers_takes_the_place_of_the_configurations() -> None:
    assert call(MaxLengthCriteria(64), max_length=10).requests()[0].max_new_tokens == 60
    assert call(max_length=10).requests()[0].max_new_tokens == 6


@pytest.mark.parametrize("samples", [True, 1, np.True_, False, None])
def test_whatever_is_true_samples(samples: Any) -> None:
    [request, _] = call(do_sample=samples).requests()
    assert request.sampler is not None
    assert request.sampler.do_sample == bool(samples)


def test_the_time_allowed_begins_with_decoding() -> None:
    given = MaxTimeCriteria(0.5, initial_timestamp=time.time() - 1.0)
    later = call(given, EosTokenCriteria(7))
    ids = torch.tensor([[1, 2]])
    ends = later.requests()[0].should_stop
    assert ends is not None
    assert ends(ids)
    later.postpone(30.0)
    assert not ends(ids)
    assert given.initial_timestamp < time.time() - 0.9, "the caller's is as it was"


def test_other_criteria_are_called() -> None:
    criteria = (MaxLengthCriteria(3), EosTokenCriteria(7), MaxTimeCriteria(1e9))
    first, _ = call(*criteria).requests()
    assert first.max_new_tokens == 1  # generate checks the length after the first token
    assert first.should_stop is not None
    assert first.should_stop(torch.tensor([[1, 7]]))
    later = call(*criteria[1:]).requests()[0].should_stop
    assert later is not None
    assert not later(torch.tensor([[1, 2]]))
