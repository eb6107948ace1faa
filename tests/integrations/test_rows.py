"""The inputs of processors for a row."""

from typing import Any

import pytest
import torch
from transformers import (
    TemperatureLogitsWarper,
)

from draftwood.integrations.transformers.rows import StatelessRowProcessors, rows_of

IDS = torch.tensor([[9, 9, 1, 2], [3, 4, 5, 6]])


def test_transformers_own_processors_work_on_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []

    def warp(self: Any, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(scores.shape))
        return scores

    monkeypatch.setattr(TemperatureLogitsWarper, "__call__", warp)
    row = rows_of(IDS, None)[0]
    StatelessRowProcessors([TemperatureLogitsWarper(0.5)], row)(
        torch.tensor([[1]]), torch.zeros(1, 3)
    )
    assert shapes == [(1, 3)]
