"""The inputs of processors and criteria for a row, and where its tokens end."""

from typing import Any

import pytest
import torch
from transformers import (
    EosTokenCriteria,
    LogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
)

from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers.rows import StatelessRowProcessors, StopTracker, rows_of

IDS = torch.tensor([[9, 9, 1, 2], [3, 4, 5, 6]])
MASK = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


class Noting(LogitsProcessor):
    """Adds each row's index to its scores, and notes the ids it was shown."""

    def __init__(self) -> None:
        self.seen: list[list[list[int]]] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> Any:
        self.seen.append(input_ids.tolist())
        return scores + torch.arange(len(scores))[:, None]


class Longer(StoppingCriteria):
    """Ends a row at its own length."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = torch.tensor(lengths)

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> Any:
        return input_ids.shape[1] >= self.lengths


def test_padding_is_removed_and_restored() -> None:
    rows = rows_of(IDS, MASK)
    assert [row.prompt for row in rows] == [(1, 2), (3, 4, 5, 6)]
    assert [row.width for row in rows] == [4, 4]
    assert rows[0].padded(torch.tensor([[1, 2, 7]])).tolist() == [[9, 9, 1, 2, 7]]
    assert rows[1].padded(torch.tensor([[3]])).tolist() == [[3]]
    assert rows[0].batched(torch.tensor([[1, 2]])).tolist() == [[1, 2], [1, 2]]
    assert [row.prompt for row in rows_of(IDS, None)] == [(9, 9, 1, 2), (3, 4, 5, 6)]


@pytest.mark.parametrize("mask", [[[1, 0, 1, 1]] * 2, [[1, 1, 1, 0]] * 2, [[1] * 4, [0] * 4]])
def test_other_masks_are_refused(mask: list[list[int]]) -> None:
    with pytest.raises(DraftwoodError):
        rows_of(IDS, torch.tensor(mask))


def test_a_callers_processor_gets_a_batch_and_scores_the_row() -> None:
    first, second = rows_of(IDS, MASK)
    noting = Noting()
    scores = torch.zeros(1, 3)
    ids = torch.tensor([[1, 2, 7]])
    assert StatelessRowProcessors([noting], first)(ids, scores).tolist() == [[0, 0, 0]]
    assert StatelessRowProcessors([noting], second)(ids, scores).tolist() == [[1, 1, 1]]
    assert noting.seen == [[[9, 9, 1, 2, 7]] * 2, [[1, 2, 7]] * 2]


def test_transformers_own_processors_work_on_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []

    def warp(self: Any, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(scores.shape))
        return scores

    monkeypatch.setattr(TemperatureLogitsWarper, "__call__", warp)
    row = rows_of(IDS, MASK)[0]
    StatelessRowProcessors([TemperatureLogitsWarper(0.5)], row)(
        torch.tensor([[1]]), torch.zeros(1, 3)
    )
    assert shapes == [(1, 3)]


def test_with_an_eos_criterion_rows_end_independently() -> None:
    rows = rows_of(IDS, MASK)
    stops = StopTracker(StoppingCriteriaList([Longer([6, 8]), EosTokenCriteria(99)]))
    assert stops.pads_finished
    assert not stops.ask(rows[0], torch.ones(1, 3, dtype=torch.int64), None)
    assert stops.ask(rows[0], torch.ones(1, 4, dtype=torch.int64), None)
    assert stops.cut(rows[0], [1, 1]) == (1, 1)


def test_without_an_eos_criterion_rows_continue_until_all_ended() -> None:
    rows = rows_of(IDS, MASK)
    stops = StopTracker(StoppingCriteriaList([Longer([6, 8])]))
    assert not stops.pads_finished

    def ask(row: int, length: int) -> bool:
        ids = torch.ones(1, length - rows[row].pads.shape[1], dtype=torch.int64)
        return stops.ask(rows[row], ids, None)

    assert not ask(0, 6)
    assert not ask(0, 9)
    assert not ask(1, 7)
    assert ask(1, 8)
    assert ask(0, 10)
    assert stops.cut(rows[0], [1] * 6) == (1, 1, 1, 1)
    assert stops.cut(rows[1], [1] * 4) == (1, 1, 1, 1)
