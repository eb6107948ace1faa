"""Rounding explains what it can move and nothing else, greedy and sampled, by dtype."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from draftwood.lab.bench.margins import Margin, margin
from draftwood.lab.rounding import ROUNDINGS
from draftwood.models import Loaded
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.sampler import Sampler, SamplingParams

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CONTEXT = [5, 6, 7]


def stock(logits: torch.Tensor) -> Loaded:
    """A model that says the same after every text."""

    def forward(input_ids: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=logits.expand(1, input_ids.shape[1], -1))

    model: Any = forward
    model.device = torch.device("cpu")
    nothing: Any = None
    return Loaded("fixed", model, nothing, frozenset())


def spread(dtype: torch.dtype, count: int = 40, seed: int = 0) -> torch.Tensor:
    """Logits as large as those of real models."""
    torch.manual_seed(seed)
    return (torch.randn(count) * 4).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_grows_with_the_dtypes_rounding_and_the_largest_logit(dtype: torch.dtype) -> None:
    for scale in (1.0, 8.0):
        logits = torch.tensor([-scale, 0.5 * scale, 0.0], dtype=dtype)
        found = margin(stock(logits), CONTEXT, (1, 2), SamplingParams())
        assert found.bound == pytest.approx(ROUNDINGS * torch.finfo(dtype).eps * scale)
        assert found.gap == pytest.approx(0.5 * scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_greedy_the_worse_of_both_tokens_decides(dtype: torch.dtype) -> None:
    logits = spread(dtype)
    order = logits.argsort(descending=True).tolist()
    logits[order[1]] = logits[order[0]]  # nearly tied: as near as can be
    tie = margin(stock(logits), CONTEXT, order[:2], SamplingParams())
    assert (tie.gap, tie.near_tie) == (0.0, True)
    # A wrong token is a fault, also where the two best ones tie.
    wrong = margin(stock(logits), CONTEXT, (order[0], order[20]), SamplingParams())
    assert not wrong.near_tie
    assert wrong.gap == pytest.approx(float(logits[order[0]] - logits[order[20]]), rel=1e-2)


def drawn(logits: torch.Tensor, sampling: SamplingParams) -> int:
    ids = torch.tensor([CONTEXT])
    scores = Sampler(sampling, len(CONTEXT)).scores(ids, logits[None].float())
    return RequestNoise(sampling.seed, len(CONTEXT) - 1).choose(0, scores[0].softmax(-1))


def tied(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """The logits with that of the draw's second token raised until it nearly ties with the first.

    They are as they were if the filters leave one token alone.
    """
    scores = Sampler(sampling, len(CONTEXT)).scores(torch.tensor([CONTEXT]), logits[None].float())
    noise = RequestNoise(sampling.seed, len(CONTEXT) - 1)
    keys, (_, second) = noise.gumbel_keys(0, scores[0].softmax(-1)).topk(2)
    moved = logits.clone()
    if keys[1] > 0:
        moved[second] += sampling.temperature * float(keys.log()[0] - keys.log()[1])
    return moved


def last(logits: torch.Tensor, sampling: SamplingParams) -> int:
    """The token that would be drawn last of all."""
    noise = RequestNoise(sampling.seed, len(CONTEXT) - 1)
    return int(noise.gumbel_keys(0, (logits.float() / sampling.temperature).softmax(-1)).argmin())


FILTERS = [{}, {"top_k": 5}, {"top_p": 0.7}, {"top_k": 12, "top_p": 0.9}]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_whatever_rounding_of_logits_draws_is_explained(
    dtype: torch.dtype, filters: dict[str, Any]
) -> None:
    """Logits of two computations that each differ a little from the model's; draws that differ."""
    differed = 0
    for seed in range(150):
        sampling = SamplingParams(temperature=0.8, seed=seed, **filters)
        logits = spread(dtype, seed=seed)
        if seed % 2:  # else rounding seldom changes a draw of finer dtypes
            logits = tied(logits, sampling)
        error = 2 * torch.finfo(dtype).eps * float(logits.abs().max())
        torch.manual_seed(seed)
        first, second = (
            drawn(logits.float() + error * (2 * torch.rand(len(logits)) - 1), sampling)
            for _ in range(2)
        )
        if first != second:
            differed += 1
            found = margin(stock(logits), CONTEXT, (first, second), sampling)
            assert found.near_tie, (seed, found)
    assert differed > 10


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_draw_is_a_fault(dtype: torch.dtype, filters: dict[str, Any]) -> None:
    for seed in range(30):
        sampling = SamplingParams(temperature=0.8, seed=seed, **filters)
        logits = spread(dtype, seed=seed)
        right, worst = drawn(logits, sampling), last(logits, sampling)
        found = margin(stock(logits), CONTEXT, (right, worst), sampling)
        assert not found.near_tie, (seed, found)
        # Drawn rightly, but with another seed: likely tokens, and not this draw's.
        other = drawn(logits, SamplingParams(temperature=0.8, seed=seed + 1000, **filters))
        if dtype is torch.float32 and other != right:
            assert not margin(stock(logits), CONTEXT, (right, other), sampling).near_tie


def test_the_gap_of_a_draw_is_what_its_logits_may_move() -> None:
    logits = spread(torch.float32)
    for seed in range(20):
        sampling = SamplingParams(temperature=0.7, seed=seed)
        right = drawn(logits, sampling)
        other = (right + 1) % len(logits)
        gap = margin(stock(logits), CONTEXT, (right, other), sampling).gap
        for push, wins in ((gap - 1e-3, False), (gap + 1e-3, True)):
            moved = logits.clone()
            moved[other] += push
            assert (drawn(moved, sampling) == other) == wins


def test_what_a_filter_drops_is_out_of_reach() -> None:
    logits = torch.tensor([4.0, 3.0, 2.0, -4.0])
    sampling = SamplingParams(temperature=1.0, top_k=2)
    assert margin(stock(logits), CONTEXT, (0, 3), sampling).gap == math.inf
    assert not Margin(math.inf, 1.0).near_tie


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_penalties_biases_and_a_grammar_are_the_requests(temperature: float) -> None:
    logits = torch.tensor([4.0, 3.5, 3.0, 6.0])
    legal = torch.tensor([True, True, True, False])
    text = [3, 0, 0]
    ties: list[dict[str, Any]] = [  # 0 was generated twice: tied with 1
        {"frequency_penalty": 0.25},
        {"presence_penalty": 0.5},
        {"logit_bias": {0: -0.5}},
        {"repetition_penalty": 4 / 3.5},
    ]
    for penalties in ties:
        sampling = SamplingParams(temperature=temperature, seed=7, **penalties)
        found = margin(stock(logits), text, (0, 1), sampling, generated=2, legal=legal)
        bare = torch.tensor([3.5, 3.5, 3.0, 6.0])
        plain = margin(
            stock(bare), text, (0, 1), SamplingParams(temperature=temperature, seed=7), legal=legal
        )
        assert found.gap == pytest.approx(plain.gap, abs=1e-5)
        assert (found.gap <= 1e-5) == (temperature == 0)
        out = margin(stock(logits), text, (0, 3), sampling, generated=2, legal=legal)
        assert out.gap == math.inf, "the grammar does not allow it"
    prompt = SamplingParams(temperature=temperature, seed=7, frequency_penalty=0.25)
    of_prompt = margin(stock(logits), text, (0, 1), prompt, legal=legal)
    counted = margin(stock(logits), text, (0, 1), prompt, generated=2, legal=legal)
    assert of_prompt.gap != pytest.approx(counted.gap), "tokens of the prompt are not counted"
