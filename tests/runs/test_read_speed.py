"""The speed of memory, and the weights that a plain step reads."""

from typing import Any

import pytest

from draftwood import load
from runs import read_speed
from tests.factories.drafted import target


def test_the_speed_is_bytes_over_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_speed, "_NUMBERS", 1000)
    monkeypatch.setattr(read_speed, "median_seconds", lambda *_: 0.5)
    assert read_speed.read_speed() == 4000 / 0.5


def test_a_tied_embedding_is_read_as_the_output_layer() -> None:
    model: Any = load("embedded").model
    every = sum(each.nbytes for each in model.parameters())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert read_speed.weight_bytes(model) == every


def test_an_embedding_of_its_own_is_not_read() -> None:
    model: Any = target()
    every = sum(each.nbytes for each in model.parameters())
    embedding = model.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is not embedding
    assert read_speed.weight_bytes(model) == every - embedding.nbytes
