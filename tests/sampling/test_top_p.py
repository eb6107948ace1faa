"""Top-p keeps what transformers' own keeps, with ties, rounded scores and tiny vocabularies."""

import math
from typing import Any

import pytest
import torch
from transformers import MinLengthLogitsProcessor
from transformers.generation.logits_process import TopPLogitsWarper

from draftwood.sampling.top_p import TopP, quicker

NONE: Any = None


def scores_of(kind: str, vocabulary: int) -> torch.Tensor:
    torch.manual_seed(vocabulary)
    rows = torch.randn(3, vocabulary) * torch.tensor([[0.01], [1.0], [6.0]])
    if kind == "tied":
        return (rows * 2).round() / 2
    if kind == "bfloat16":
        return rows.bfloat16().float()
    if kind == "banned":
        return rows.masked_fill(torch.rand_like(rows) < 0.5, -math.inf)
    return rows


@pytest.mark.parametrize("kind", ["plain", "tied", "bfloat16", "banned"])
@pytest.mark.parametrize("vocabulary", [1, 2, 17, 300, 9000])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
def test_the_nucleus_is_that_of_transformers(kind: str, vocabulary: int, top_p: float) -> None:
    scores = scores_of(kind, vocabulary)
    if kind == "banned":
        scores[:, 0] = 0.0
    before = scores.clone()
    found = TopP(top_p)(NONE, scores)
    assert torch.equal(scores, before), "the given scores are left alone"
    for mine, theirs, row in zip(found, TopPLogitsWarper(top_p)(NONE, scores), scores, strict=True):
        # Tied tokens at the boundary are as good as each other.
        values, others = (each[each.isfinite()].sort().values for each in (mine, theirs))
        # Sums that round otherwise move the boundary by a token, float32 sums of thousands by more.
        off = 1 if vocabulary < 1000 else 4
        assert abs(len(values) - len(others)) <= off
        least = min(len(values), len(others))
        assert torch.equal(values[len(values) - least :], others[len(others) - least :])
        assert torch.equal(mine[mine.isfinite()], row[mine.isfinite()])


def test_of_tied_tokens_the_last_ones_are_kept() -> None:
    scores = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0]])
    # The first has .405, each other .149: two of the four are needed for .7.
    kept = TopP(0.7)(NONE, scores).isfinite().tolist()
    assert kept == [[True, False, False, True, True]]
    assert int(TopPLogitsWarper(0.7)(NONE, scores).isfinite().sum()) == 3


def test_rows_do_not_depend_on_their_neighbours() -> None:
    scores = scores_of("tied", 9000)
    together = TopP(0.9)(NONE, scores)
    alone = torch.cat([TopP(0.9)(NONE, row[None]) for row in scores])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_rows_without_a_distribution_are_left_for_the_caller(bad: float) -> None:
    scores = torch.full((1, 20), bad)
    found = TopP(0.9)(NONE, scores)
    assert bool(found.softmax(-1).isnan().all())


def test_transformers_top_p_is_replaced_where_it_is_the_same() -> None:
    found = quicker(TopPLogitsWarper(0.8))
    assert isinstance(found, TopP)
    assert found.top_p == 0.8
    wider = TopPLogitsWarper(0.8, min_tokens_to_keep=2)
    whole = TopPLogitsWarper(1.0)
    other = MinLengthLogitsProcessor(1, [2])
    for each in (wider, whole, other):
        assert quicker(each) is each
