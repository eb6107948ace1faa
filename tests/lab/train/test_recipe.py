"""Shapes and schedules: what they refuse and what follows from them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.train.recipe import DRAFT_SHAPE, TARGET_SHAPE, ModelShape, TrainingRecipe
from draftwood.lab.train.text_model import new_model

RECIPE = TrainingRecipe(
    tokens=100_000, length=100, rows=10, warmup=5, decay_share=0.4, short_share=0.5
)


def test_the_rate_rises_stays_and_falls() -> None:
    rates = [RECIPE.rate(step) for step in range(RECIPE.steps)]
    assert len(rates) == 100
    assert rates[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert set(rates[5:60]) == {1.0}
    assert all(a > b for a, b in pairwise(rates[60:]))
    assert rates[-1] == pytest.approx(1 / 40)


def test_a_shorter_run_only_falls_earlier() -> None:
    shorter = replace(RECIPE, tokens=50_000)
    assert [shorter.rate(step) for step in range(30)] == [RECIPE.rate(s) for s in range(30)]
    assert shorter.rate(40) < RECIPE.rate(40)


def test_rows_are_cut_at_first_and_the_teacher_comes_in_later() -> None:
    assert [step for step in range(100) if RECIPE.halves(step)] == list(range(50))
    taught = replace(RECIPE, teacher_share=0.5, teacher_from=0.75)
    assert [step for step in range(100) if taught.taught(step)] == list(range(75, 100))
    assert not RECIPE.taught(99)


@pytest.mark.parametrize(
    ("name", "value"),
    [("tokens", 999), ("length", 7), ("rows", 0), ("decay_share", 1.5), ("teacher_share", -0.1)],
)
def test_impossible_recipes_are_refused(name: str, value: float) -> None:
    settings = {"tokens": 100_000, "length": 100, "rows": 10} | {name: value}
    with pytest.raises(DraftwoodError):
        TrainingRecipe(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layers", 0, "layers is 0; give at least 1"),
        ("kv_heads", 3, "no multiple"),
        ("head_dim", 15, "need an even one"),
    ],
)
def test_impossible_shapes_are_refused(name: str, value: int, message: str) -> None:
    sizes = {"hidden": 32, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 16, "ffn": 48}
    with pytest.raises(DraftwoodError, match=message):
        ModelShape(**(sizes | {name: value}))


def test_the_draft_is_about_a_tenth_of_the_target() -> None:
    target = new_model(TARGET_SHAPE, 4096, 1).num_parameters()
    draft = new_model(DRAFT_SHAPE, 4096, 1).num_parameters()
    assert 6_000_000 <= target <= 7_500_000
    assert 0.08 < draft / target < 0.12
    config = TARGET_SHAPE.config(4096)
    assert config.tie_word_embeddings
    assert (config.bos_token_id, config.eos_token_id) == (0, 0)
