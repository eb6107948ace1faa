"""Filters at the end of a list are known by their numbers, all others stay processors."""

import math

import pytest
from transformers import LogitsProcessor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from draftwood.sampling.filters import Filters, split_filters
from draftwood.sampling.params import SamplingParams
from draftwood.sampling.processors import processors_of
from draftwood.sampling.top_p import TopP

PENALTY = RepetitionPenaltyLogitsProcessor(1.2)
WARM, K, P, MIN_P = (
    TemperatureLogitsWarper(0.5),
    TopKLogitsWarper(9),
    TopP(0.8),
    MinPLogitsWarper(0.1),
)


def test_parameters_become_filters() -> None:
    params = SamplingParams(0.7, top_k=5, top_p=0.9, min_p=0.05, repetition_penalty=1.1)
    (before,), filters = split_filters(processors_of(params, 3))
    assert isinstance(before, RepetitionPenaltyLogitsProcessor)
    assert filters == Filters(0.7, 5, 0.9, 0.05)
    assert split_filters(()) == ((), Filters())


@pytest.mark.parametrize(
    ("processors", "left", "filters"),
    [
        ([WARM, K, TopPLogitsWarper(0.8), MIN_P], 0, Filters(0.5, 9, 0.8, 0.1)),
        ([PENALTY, P], 1, Filters(top_p=0.8)),
        ([P, PENALTY], 2, Filters()),
        ([P, WARM], 1, Filters(0.5)),
        ([WARM, WARM, K], 1, Filters(0.5, 9)),
        ([MIN_P, P], 1, Filters(top_p=0.8)),
        ([TopKLogitsWarper(9, filter_value=-1e4)], 1, Filters()),
        ([WARM, TopPLogitsWarper(0.8, min_tokens_to_keep=2)], 2, Filters()),
        ([MinPLogitsWarper(0.1, min_tokens_to_keep=2)], 1, Filters()),
        ([TopP(0.8, filter_value=-math.inf), MIN_P], 0, Filters(top_p=0.8, min_p=0.1)),
    ],
)
def test_only_usual_filters_in_the_usual_order_are_split(
    processors: list[LogitsProcessor], left: int, filters: Filters
) -> None:
    assert split_filters(processors) == (tuple(processors[:left]), filters)


def test_a_filter_of_a_subclass_stays_a_processor() -> None:
    class Own(TemperatureLogitsWarper):
        pass

    own = Own(0.5)
    assert split_filters([own]) == ((own,), Filters())
