"""A call of ``generate`` becomes requests, and completions become its result."""

from typing import Any

import pytest
import torch
from transformers import (
    EosTokenCriteria,
    GenerationConfig,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
    TopKLogitsWarper,
)

from draftwood.engine.request import Completion
from draftwood.engine.stats import Tally
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers.call import GenerateCall

IDS = torch.tensor([[9, 9, 1, 2], [3, 4, 5, 6]])
MASK = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


def call(*criteria: Any, processors: tuple[Any, ...] = (), **settings: Any) -> GenerateCall:
    kind: Any = GenerationConfig  # which transformers leaves untyped
    config = kind(**{"max_length": 10} | settings)
    return GenerateCall(IDS, MASK, processors, StoppingCriteriaList(criteria), config)


def completion(*tokens: int) -> Completion:
    return Completion(tokens, "", "eos", Tally(), 4, 0.0, 0.0)


def test_length_and_eos_criteria_are_handled_by_the_engine() -> None:
    for request in call(MaxLengthCriteria(9), EosTokenCriteria([7, 8])).requests():
        assert request.max_new_tokens == 5
        assert request.eos == {7, 8}
        assert request.should_stop is None
        assert request.observer is None


def test_other_criteria_are_called() -> None:
    criteria = (MaxLengthCriteria(3), EosTokenCriteria(7), MaxTimeCriteria(1e9))
    first, _ = call(*criteria).requests()
    assert first.max_new_tokens == 1  # generate looks at the length after the first token
    assert first.should_stop is not None
    assert first.should_stop(torch.tensor([[1, 7]]))
    later = call(*criteria[1:]).requests()[0].should_stop
    assert later is not None
    assert not later(torch.tensor([[1, 2]]))


def test_seeds_come_from_torch_and_only_for_sampling() -> None:
    def seeds(**settings: Any) -> list[int]:
        torch.manual_seed(5)
        made = call(MaxLengthCriteria(9), processors=(TopKLogitsWarper(3),), **settings)
        return [request.sampling.seed for request in made.requests()]

    drawn = seeds(do_sample=True)
    assert drawn == seeds(do_sample=True)
    assert len(set(drawn)) == 2
    assert seeds(do_sample=False) == [0, 0]


def test_rows_are_padded_on_the_right() -> None:
    done = [completion(5), completion(6, 7, 8)]
    for settings, pad in (
        ({"pad_token_id": 0, "eos_token_id": 8}, 0),
        ({"eos_token_id": [8, 7]}, 8),
        ({"eos_token_id": 8}, 8),
    ):
        found = call(**settings).result(done)
        assert isinstance(found, torch.Tensor)
        assert found.tolist() == [[9, 9, 1, 2, 5, pad, pad], [3, 4, 5, 6, 6, 7, 8]]
    with pytest.raises(DraftwoodError, match="pad_token_id"):
        call().result(done)
    assert isinstance(call().result([completion(5), completion(6)]), torch.Tensor)
