"""Requests of a call of ``generate``."""

from typing import Any

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


def test_other_criteria_are_called() -> None:
    criteria = (MaxLengthCriteria(3), EosTokenCriteria(7), MaxTimeCriteria(1e9))
    first, _ = call(*criteria).requests()
    assert first.max_new_tokens == 1  # generate checks the length after the first token
    assert first.should_stop is not None
    assert first.should_stop(torch.tensor([[1, 7]]))
    later = call(*criteria[1:]).requests()[0].should_stop
    assert later is not None
    assert not later(torch.tensor([[1, 2]]))
