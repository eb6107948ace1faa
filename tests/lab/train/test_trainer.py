"""The loop: it learns, it resumes exactly, and threads change nothing."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from draftwood.errors import DraftwoodError
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.recipe import ModelShape, TrainingRecipe
from draftwood.lab.train.text_model import TextLoss, new_model
from draftwood.lab.train.trainer import RunEnd, Trainer
from tests.lab.train.conftest import MIXTURE

SHAPE = ModelShape(hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, ffn=48, context=128)
RECIPE = TrainingRecipe(tokens=12 * 4 * 32, length=32, rows=4, warmup=2, short_share=0.5, seed=4)
VOCABULARY = 320


def trainer(
    directory: Path,
    domains: tuple[Domain, ...],
    recipe: TrainingRecipe = RECIPE,
    teacher: LlamaForCausalLM | None = None,
    **options: Any,
) -> Trainer:
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    model = new_model(SHAPE, VOCABULARY, recipe.seed)
    loss = TextLoss(model, recipe, teacher)
    return Trainer(directory, model, recipe, batches, {"note": 1}, loss, **options)


def weights(trained: Trainer) -> dict[str, torch.Tensor]:
    return trained.model.state_dict()


def same(a: Trainer, b: Trainer) -> bool:
    left, right = weights(a), weights(b)
    return all(torch.equal(left[name], right[name]) for name in left)


def test_the_loss_falls_and_is_logged(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    losses: list[float] = []
    recipe = replace(RECIPE, tokens=40 * 4 * 32)
    run = trainer(tmp_path, domains, recipe)
    assert run.run(on_step=lambda step, loss: losses.append(loss)) is RunEnd.FINISHED
    assert len(losses) == run.step == 40
    assert run.tokens == recipe.tokens
    assert losses[0] == pytest.approx(torch.log(torch.tensor(float(VOCABULARY))).item(), abs=0.2)
    assert sum(losses[-5:]) / 5 < losses[0] - 1.0
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 20, 30, 40]


def test_resuming_equals_an_uninterrupted_run(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    straight = trainer(tmp_path / "a", domains)
    straight.run()
    # Stopped after 5 updates (rows still in halves) and after 5 more (whole rows, rate falling).
    for expected in (RunEnd.PAUSED, RunEnd.PAUSED, RunEnd.FINISHED):
        resumed = trainer(tmp_path / "b", domains)
        assert resumed.run(stop_after=5) is expected
    assert same(straight, resumed)
    assert not torch.equal(weights(straight)["model.norm.weight"], torch.ones(SHAPE.hidden))


def test_the_number_of_workers_changes_nothing(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    runs = [
        trainer(tmp_path / str(workers), domains, micro_tokens=32, workers=workers)
        for workers in (1, 3)
    ]
    for run in runs:
        run.run(stop_after=4)
    assert same(*runs)


def test_the_size_of_the_parts_changes_rounding_only(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    runs = [trainer(tmp_path / str(size), domains, micro_tokens=size) for size in (16, 48)]
    for run in runs:
        run.run(stop_after=1)
    embeddings = [weights(run)["model.embed_tokens.weight"] for run in runs]
    # One update of Adam moves by about the rate, whatever rounding does to the slopes.
    assert (embeddings[0] - embeddings[1]).abs().max() < 2 * 2 * RECIPE.adam_rate
    assert (embeddings[0] - embeddings[1]).abs().mean() < 0.01 * RECIPE.adam_rate


def test_a_run_can_be_shortened_but_not_changed(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    trainer(tmp_path, domains).run(stop_after=2)
    shorter = trainer(tmp_path, domains, replace(RECIPE, tokens=6 * 4 * 32))
    assert shorter.step == 2
    assert shorter.run() is RunEnd.FINISHED
    assert shorter.step == 6
    with pytest.raises(DraftwoodError, match="muon_rate"):
        trainer(tmp_path, domains, replace(RECIPE, muon_rate=0.1))


def test_a_signal_stops_at_the_next_update(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def on_step(step: int, loss: float) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    run = trainer(tmp_path, domains)
    assert run.run(on_step=on_step) is RunEnd.INTERRUPTED
    assert run.step == 3
    assert trainer(tmp_path, domains).step == 3
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_teacher_pulls_the_student_towards_it(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    teacher = new_model(SHAPE, VOCABULARY, 9)
    for parameter in teacher.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    recipe = replace(RECIPE, tokens=30 * 4 * 32, short_share=0.0)
    tokens = torch.from_numpy(domains[0].held_out[:128].astype("int64"))[None]
    gaps = []
    for share in (0.0, 1.0):
        run = trainer(
            tmp_path / str(share), domains, replace(recipe, teacher_share=share), teacher=teacher
        )
        run.run()
        with torch.no_grad():
            ours, theirs = (m(tokens).logits.log_softmax(-1) for m in (run.model, teacher))
        gaps.append((theirs.exp() * (theirs - ours)).sum(-1).mean().item())
    assert gaps[1] < 0.8 * gaps[0]
