"""Heads in the training loop: they learn, they resume exactly, and threads change nothing."""

from pathlib import Path

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.evaluate import acceptance
from draftwood.lab.train.head import HeadPlan, frequent_tokens, new_head
from draftwood.lab.train.loss import HeadLoss
from draftwood.lab.train.recipe import TrainingRecipe
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.text_model import TextLoss
from draftwood.lab.train.trainer import RunEnd, Trainer
from tests.factories.trainable_heads import teacher
from tests.lab.train.conftest import MIXTURE

VOCABULARY = 320
RECIPE = TrainingRecipe(tokens=9 * 4 * 32, length=32, rows=4, warmup=2, short_share=0.5, seed=4)


def trainer(
    directory: Path,
    domains: tuple[Domain, ...],
    target: Teacher,
    recipe: TrainingRecipe = RECIPE,
    steps: int = 3,
    workers: int = 1,
) -> Trainer:
    config = HeadPlan(draft_vocab=100).config(target)
    drafted = frequent_tokens(domains, MIXTURE, VOCABULARY, 100)
    head = new_head(config, target, drafted, recipe.seed)
    return Trainer(
        directory,
        head,
        recipe,
        Batches(domains, MIXTURE, recipe.length, recipe.seed),
        {"unroll": steps, "target": target.fingerprint()},
        HeadLoss(head, target, steps),
        micro_tokens=64,
        workers=workers,
    )


def same(a: Trainer, b: Trainer) -> bool:
    left, right = a.model.state_dict(), b.model.state_dict()
    return all(torch.equal(left[name], right[name]) for name in left)


def test_resuming_equals_an_uninterrupted_run(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    target = teacher(VOCABULARY)
    straight = trainer(tmp_path / "a", domains, target)
    before = {name: tensor.clone() for name, tensor in straight.model.state_dict().items()}
    straight.run()
    # Stopped after 4 updates (rows still in halves) and after 4 more (whole rows, rate falling).
    for expected in (RunEnd.PAUSED, RunEnd.PAUSED, RunEnd.FINISHED):
        resumed = trainer(tmp_path / "b", domains, target)
        assert resumed.run(stop_after=4) is expected
    assert same(straight, resumed)
    after = straight.model.state_dict()
    unchanged = {name for name in after if torch.equal(before[name], after[name])}
    assert unchanged == {"d2t", "t2d"}
    # Muon has the eight matrices inside, AdamW the output matrix and four norms.
    saved = torch.load(tmp_path / "a" / "checkpoint.pt", weights_only=True)["optimisers"]
    assert [len(optimiser["state"]) for optimiser in saved] == [8, 5]


def test_the_number_of_workers_changes_nothing(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    target = teacher(VOCABULARY)
    runs = [trainer(tmp_path / str(n), domains, target, workers=n) for n in (1, 3)]
    for run in runs:
        run.run(stop_after=3)
    assert same(*runs)


def test_another_unroll_or_target_is_another_run(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    target = teacher(VOCABULARY)
    trainer(tmp_path, domains, target).run(stop_after=1)
    with pytest.raises(DraftwoodError, match="unroll 3 there, 2 here"):
        trainer(tmp_path, domains, target, steps=2)
    with pytest.raises(DraftwoodError, match=r"another run \(target '"):
        trainer(tmp_path, domains, teacher(VOCABULARY, seed=2))


def test_a_head_learns_to_draft_what_its_target_says(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    target = teacher(VOCABULARY, seed=3)
    recipe = TrainingRecipe(tokens=40 * 4 * 32, length=32, rows=4, warmup=2, seed=4)
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    target.model.requires_grad_(True)
    text = TextLoss(target.model, recipe)
    Trainer(tmp_path / "target", target.model, recipe, batches, {}, text).run()
    target.model.requires_grad_(False)

    losses: list[float] = []
    run = trainer(tmp_path / "head", domains, target, recipe)
    head = run.model
    before = acceptance(head, target, 3, domains[0])  # type: ignore[arg-type]
    run.run(on_step=lambda step, loss: losses.append(loss))
    after = acceptance(head, target, 3, domains[0])  # type: ignore[arg-type]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert after.accepted_tokens > before.accepted_tokens + 0.5
    assert after.accepted == sorted(after.accepted, reverse=True)
    assert all(a < b for a, b in zip(after.nats_per_token, before.nats_per_token, strict=True))
