"""The kernel draws the token that tensors of the vocabulary's size give."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from draftwood.errors import DraftwoodError
from draftwood.kernels.compiled import _command
from draftwood.protocols import TargetOutput
from draftwood.sampling.distributions import TreeDistributions
from draftwood.sampling.filters import Filters
from draftwood.sampling.history import History
from draftwood.sampling.kernel import draw_with_kernel, kernel_for
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.sampler import Sampler, SamplingParams
from draftwood.tree import tree_of

pytestmark = pytest.mark.skipif(_command() is None, reason="no C++ compiler")

ROOT_ONLY = tree_of([0], [-1])
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"top_k": 1},
    {"top_k": 40},
    {"top_p": 0.5},
    {"top_p": 0.99},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 10**6},
    {"top_k": 2**64 + 1},
    {"temperature": 1e-5, "top_p": 0.3},
    {"top_p": 0.99999999},
    {"temperature": 0.8, "top_k": 30, "top_p": 0.9},
    {"temperature": 1.5, "top_k": 500, "top_p": 0.95, "min_p": 0.02},
]
SIZES = (1, 7, 64, 97, 1000, 5003)


def rows_of(logits: torch.Tensor) -> TargetOutput:
    n = len(logits)
    none = np.zeros((n, 0))
    argmax = logits.argmax(-1).numpy()
    return TargetOutput(logits, argmax, none.astype(np.int64), none.astype(np.float32))


def plainly(logits: torch.Tensor, params: SamplingParams, noise: RequestNoise) -> int:
    """The token by a softmax over all scores."""
    scores = Sampler(params, 1).scores(torch.zeros(1, 1, dtype=torch.int64), logits[None])
    return noise.choose(0, scores.softmax(-1)[0])


def with_kernel(logits: torch.Tensor, filters: Filters, noise: RequestNoise) -> int:
    return draw_with_kernel(logits, filters, *noise.address(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_kernel_draws_what_tensors_give(setting: dict[str, Any], dtype: torch.dtype) -> None:
    params = SamplingParams(**{"temperature": 1.0, **setting})
    filters = Filters(**setting)
    generator = torch.Generator().manual_seed(8)
    for size, scale, position in itertools.product(SIZES, (0.5, 4.0), range(8)):
        noise = RequestNoise(2**63 + 5, position)
        logits = (torch.randn(size, generator=generator) * scale).to(dtype)
        assert with_kernel(logits, filters, noise) == plainly(logits, params, noise)


def test_ties_at_the_nucleus_are_kept_as_by_tensors() -> None:
    """In bfloat16 many logits are equal, so that which of them are kept decides."""
    generator = torch.Generator().manual_seed(9)
    logits = torch.randn(4096, generator=generator).to(torch.bfloat16)
    assert len(set(logits.tolist())) < 2000
    for p in (0.1, 0.5, 0.9):
        params = SamplingParams(temperature=1.0, top_p=p)
        for position in range(30):
            noise = RequestNoise(1, position)
            drawn = with_kernel(logits, Filters(top_p=p), noise)
            assert drawn == plainly(logits, params, noise)


def test_top_k_keeps_all_that_equal_the_last() -> None:
    logits = torch.tensor([1.0, 0.0, 1.0, 1.0, -1.0])
    drawn = {with_kernel(logits, Filters(top_k=2), RequestNoise(0, at)) for at in range(60)}
    assert drawn == {0, 2, 3}


def test_banned_tokens_are_never_drawn() -> None:
    logits = torch.full((300,), -math.inf)
    logits[[5, 250]] = torch.tensor([0.0, 1.0])
    for setting in SETTINGS:
        for position in range(20):
            assert with_kernel(logits, Filters(**setting), RequestNoise(0, position)) in {5, 250}


@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_rows_without_a_finite_maximum_are_refused(setting: dict[str, Any], size: int) -> None:
    filters = Filters(**setting)
    wrong = torch.zeros(3, size)
    wrong[0] = -math.inf
    wrong[1, size - 1] = math.inf
    wrong[2, 0] = math.nan
    for row in wrong:
        assert with_kernel(row, filters, RequestNoise(0)) == -1
    nan = torch.zeros(1, size)
    nan[0, 1] = math.nan
    sampler = Sampler(SamplingParams(**{"temperature": 1.0, **setting}), 1)
    p = TreeDistributions(rows_of(nan), ROOT_ONLY, sampler, History([0]))
    with pytest.raises(DraftwoodError, match="not numbers at position 1"):
        p.draw(0, RequestNoise(0))


def test_draws_follow_the_softmax() -> None:
    logits = torch.tensor([0.3, -1.0, 1.7, 0.0, -0.4])
    counts = np.zeros(5)
    for position in range(4000):
        counts[with_kernel(logits, Filters(temperature=0.7), RequestNoise(3, position))] += 1
    expected = (logits / 0.7).softmax(0).double().numpy()
    assert stats.chisquare(counts, 4000 * expected / expected.sum()).pvalue > 1e-3
    # Negative control: the test can tell temperature 0.7 from 1.
    wrong = logits.softmax(0).double().numpy()
    assert stats.chisquare(counts, 4000 * wrong / wrong.sum()).pvalue < 1e-6


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_a_tree_is_drawn_from_with_the_kernel(
    penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Penalties are applied along a node's path before it, as without it."""
    torch.manual_seed(4)
    tree = tree_of([7, 1, 2, 3], [-1, 0, 1, 2])
    logits = torch.randn(4, 40) * 2
    params = SamplingParams(temperature=0.7, top_p=0.9, repetition_penalty=penalty)

    def drawn(seed: int) -> list[int]:
        p = TreeDistributions(rows_of(logits), tree, Sampler(params, 3), History([8, 9, 7]))
        return [p.draw(node, RequestNoise(seed)) for node in range(4)]

    kernel = [drawn(seed) for seed in range(20)]
    assert kernel_for(logits)
    monkeypatch.setattr("draftwood.sampling.distributions.kernel_for", lambda _: False)
    assert [drawn(seed) for seed in range(20)] == kernel
