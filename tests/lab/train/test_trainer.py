"""The loop: models and heads learn, they resume exactly, and threads change nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.evaluate import drafted_chains
from draftwood.lab.train.head import frequent_tokens, new_head
from draftwood.lab.train.head_loss import HeadLoss
from draftwood.lab.train.head_plan import HeadPlan
from draftwood.lab.train.recipe import ModelShape, TrainingRecipe
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.text_model import TextLoss, TextModel, new_model
from draftwood.lab.train.trainer import RunEnd, Trainer
from tests.factories.trainable_heads import teacher
from tests.lab.train.conftest import MIXTURE

SHAPE = ModelShape(hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, ffn=48, context=128)
ROWS, LENGTH = 4, 32
RECIPE = TrainingRecipe(
    tokens=12 * ROWS * LENGTH, length=LENGTH, rows=ROWS, warmup=2, short_share=0.5, seed=4
)
VOCABULARY = 320
DRAFTED = 100
TARGET = teacher(VOCABULARY)


Make: TypeAlias = Callable[..., Trainer]


def text_trainer(
    directory: Path,
    domains: tuple[Domain, ...],
    recipe: TrainingRecipe = RECIPE,
    taught_by: TextModel | None = None,
    **options: Any,
) -> Trainer:
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    model = new_model(SHAPE, VOCABULARY, recipe.seed)
    loss = TextLoss(model, recipe, taught_by)
    return Trainer(directory, model, recipe, batches, {"note": 1}, loss, **options)


def head_trainer(
    directory: Path,
    domains: tuple[Domain, ...],
    recipe: TrainingRecipe = RECIPE,
    target: Teacher = TARGET,
    tied: bool = False,
    **options: Any,
) -> Trainer:
    drafted = frequent_tokens(domains, MIXTURE, VOCABULARY, DRAFTED)
    config = HeadPlan(draft_vocab=DRAFTED).config(target)
    head = new_head(config, target, drafted, recipe.seed, tied=tied)
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    loss = HeadLoss(head, target, steps=3)
    return Trainer(directory, head, recipe, batches, {}, loss, **options)


both = pytest.mark.parametrize("make", [text_trainer, head_trainer])


def same(a: Trainer, b: Trainer) -> bool:
    left, right = a.model.state_dict(), b.model.state_dict()
    return all(torch.equal(left[name], right[name]) for name in left)


def test_the_loss_falls_and_is_logged(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    losses: list[float] = []
    recipe = replace(RECIPE, tokens=40 * ROWS * LENGTH)
    run = text_trainer(tmp_path, domains, recipe)
    assert run.run(on_step=lambda step, loss: losses.append(loss)) is RunEnd.FINISHED
    assert len(losses) == run.step == 40
    assert run.tokens == recipe.tokens
    assert losses[0] == pytest.approx(torch.log(torch.tensor(float(VOCABULARY))).item(), abs=0.2)
    assert sum(losses[-5:]) / 5 < losses[0] - 1.0
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 20, 30, 40]


@both
def test_resuming_equals_an_uninterrupted_run(
    make: Make, tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    straight = make(tmp_path / "a", domains)
    before = {name: tensor.clone() for name, tensor in straight.model.state_dict().items()}
    straight.run()
    # Stopped after 5 updates (rows still in halves) and after 5 more (whole rows, rate falling).
    for expected in (RunEnd.PAUSED, RunEnd.PAUSED, RunEnd.FINISHED):
        resumed = make(tmp_path / "b", domains)
        assert resumed.run(stop_after=5) is expected
    assert same(straight, resumed)
    after = straight.model.state_dict()
    assert {n for n in after if torch.equal(before[n], after[n])} <= {"d2t", "t2d"}


def test_muon_trains_the_matrices_of_a_head(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    head_trainer(tmp_path, domains).run(stop_after=1)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["optimisers"]
    # Muon has the eight matrices inside, AdamW the output matrix and four norms.
    assert [len(optimiser["state"]) for optimiser in saved] == [8, 5]


def test_what_is_frozen_stays(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    run = head_trainer(tmp_path, domains, tied=True)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    run.run(stop_after=2)
    after = run.model.state_dict()
    still = {name for name in after if torch.equal(before[name], after[name])}
    assert still == {"d2t", "t2d", "lm_head.weight"}


@both
def test_the_number_of_workers_changes_nothing(
    make: Make, tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    runs = [
        make(tmp_path / str(workers), domains, micro_tokens=32, workers=workers)
        for workers in (1, 3)
    ]
    for run in runs:
        run.run(stop_after=4)
    assert same(*runs)


def test_the_size_of_the_parts_changes_rounding_only(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    runs = [text_trainer(tmp_path / str(size), domains, micro_tokens=size) for size in (16, 48)]
    for run in runs:
        run.run(stop_after=1)
    embeddings = [run.model.state_dict()["model.embed_tokens.weight"] for run in runs]
    # One update of Adam moves by about the rate, whatever rounding does to the slopes.
    assert (embeddings[0] - embeddings[1]).abs().max() < 2 * 2 * RECIPE.adam_rate
    assert (embeddings[0] - embeddings[1]).abs().mean() < 0.01 * RECIPE.adam_rate


def test_a_run_can_be_shortened_but_not_changed(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    text_trainer(tmp_path, domains).run(stop_after=2)
    shorter = text_trainer(tmp_path, domains, replace(RECIPE, tokens=6 * ROWS * LENGTH))
    assert shorter.step == 2
    assert shorter.run() is RunEnd.FINISHED
    assert shorter.step == 6
    with pytest.raises(
        DraftwoodError, match=f"has 6 updates, .* 5: give --tokens {6 * ROWS * LENGTH} or"
    ):
        text_trainer(tmp_path, domains, replace(RECIPE, tokens=5 * ROWS * LENGTH))
    with pytest.raises(DraftwoodError, match="muon_rate"):
        text_trainer(tmp_path, domains, replace(RECIPE, muon_rate=0.1))


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_a_run_that_diverges_keeps_its_last_checkpoint(
    factor: float, tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    text_trainer(tmp_path, domains).run(stop_after=2)
    saved = (tmp_path / "checkpoint.pt").read_bytes()
    batches = Batches(domains, MIXTURE, LENGTH, RECIPE.seed)
    model = new_model(SHAPE, VOCABULARY, RECIPE.seed)
    usual = TextLoss(model, RECIPE)

    def loss(given: torch.Tensor, wanted: torch.Tensor, step: int) -> torch.Tensor:
        found = usual(given, wanted, step)
        return found * factor if step == 9 else found

    run = Trainer(tmp_path, model, RECIPE, batches, {"note": 1}, loss)
    with pytest.raises(DraftwoodError, match=r"at update 10: its loss is (nan|inf)"):
        run.run()
    assert (tmp_path / "checkpoint.pt").read_bytes() == saved
    assert (tmp_path / "log.jsonl").read_text() == ""
    assert all(weight.isfinite().all() for weight in model.state_dict().values())


def test_rates_that_rise_again_are_told(
    tmp_path: Path, domains: tuple[Domain, ...], caplog: pytest.LogCaptureFixture
) -> None:
    text_trainer(tmp_path, domains).run(stop_after=5)
    longer = replace(RECIPE, tokens=20 * ROWS * LENGTH)
    text_trainer(tmp_path, domains, longer)
    assert "had begun to fall" not in caplog.text, "they have not"
    text_trainer(tmp_path, domains).run()
    text_trainer(tmp_path, domains)
    assert "had begun to fall" not in caplog.text, "there are no more updates"
    text_trainer(tmp_path, domains, longer)
    assert (
        "had begun to fall at update 8; with more --tokens they rise again, to 1.00" in caplog.text
    )


def test_a_signal_stops_at_the_next_update(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def on_step(step: int, loss: float) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    run = text_trainer(tmp_path, domains)
    assert run.run(on_step=on_step) is RunEnd.INTERRUPTED
    assert run.step == 3
    assert text_trainer(tmp_path, domains).step == 3
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_teacher_pulls_the_student_towards_it(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    taught_by = new_model(SHAPE, VOCABULARY, 9)
    for parameter in taught_by.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    tokens = torch.from_numpy(domains[0].held_out[:128].astype("int64"))[None]
    gaps = []
    for share in (0.0, 1.0):
        recipe = replace(RECIPE, tokens=30 * ROWS * LENGTH, short_share=0.0, teacher_share=share)
        run = text_trainer(tmp_path / str(share), domains, recipe, taught_by)
        run.run()
        with torch.no_grad():
            ours, theirs = (m(tokens).logits.log_softmax(-1) for m in (run.model, taught_by))
        gaps.append((theirs.exp() * (theirs - ours)).sum(-1).mean().item())
    assert gaps[1] < 0.8 * gaps[0]


def test_a_head_learns_to_draft_as_its_target(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    target = teacher(VOCABULARY, seed=3)
    recipe = replace(RECIPE, tokens=40 * ROWS * LENGTH, short_share=0.7)
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    target.model.requires_grad_(True)
    loss = TextLoss(target.model, recipe)
    Trainer(tmp_path / "target", target.model, recipe, batches, {}, loss).run()
    target.model.requires_grad_(False)

    losses: list[float] = []
    run = head_trainer(tmp_path / "head", domains, recipe, target, micro_tokens=64)
    head: Any = run.model
    before = drafted_chains(head, target, 3, domains[0]).acceptance()
    run.run(on_step=lambda step, loss: losses.append(loss))
    after = drafted_chains(head, target, 3, domains[0]).acceptance()
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert after.accepted_tokens > before.accepted_tokens + 0.5
    assert after.accepted == sorted(after.accepted, reverse=True)
    assert all(a < b for a, b in zip(after.nats_per_token, before.nats_per_token, strict=True))
