"""``draftwood train``: trains an EAGLE-3 head, or the models in the package."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from draftwood.cli._train_flags import (
    job_flags,
    plan_flags,
    recipe_flags,
    run_flags,
    shape_flags,
    vocabulary_flag,
)
from draftwood.lab.train.recipe import (
    DRAFT_RECIPE,
    DRAFT_SHAPE,
    HEAD_RECIPE,
    TARGET_RECIPE,
    TARGET_SHAPE,
    ModelShape,
    TrainingRecipe,
)

if TYPE_CHECKING:
    from draftwood.lab.train.head import HeadPlan
    from draftwood.lab.train.training_run import RunOptions, TrainingRun


@click.group()
def train() -> None:
    """Train an EAGLE-3 head for any model, or the models in the package.

    An interrupted run resumes at its last checkpoint. A target needs a tokenizer in OUT (trained if
    there is none); a draft model and a head need a finished target.
    """
    logging.getLogger("draftwood.lab.train").setLevel(logging.INFO)


@train.command()
@run_flags
@vocabulary_flag
def tokenizer(run: TrainingRun, vocab_size: int) -> None:
    """Train the tokenizer of target and draft model."""
    run.train_tokenizer(vocab_size)


@train.command()
@run_flags
@shape_flags(TARGET_SHAPE)
@recipe_flags(TARGET_RECIPE)
@job_flags
def target(
    run: TrainingRun, shape: ModelShape, recipe: TrainingRecipe, job: RunOptions, vocab_size: int
) -> None:
    """Train a small target on text."""
    run.train_model("target", shape, recipe, job, vocab_size)


@train.command()
@run_flags
@shape_flags(DRAFT_SHAPE)
@recipe_flags(DRAFT_RECIPE)
@click.option(
    "--teacher-share",
    default=DRAFT_RECIPE.teacher_share,
    show_default=True,
    help="Weight of the target's distribution in the loss.",
)
@click.option(
    "--teacher-from",
    default=DRAFT_RECIPE.teacher_from,
    show_default=True,
    help="Share of updates before the target's distribution is used.",
)
@job_flags
def draft(
    run: TrainingRun,
    shape: ModelShape,
    recipe: TrainingRecipe,
    job: RunOptions,
    vocab_size: int,
    teacher_share: float,
    teacher_from: float,
) -> None:
    """Train a draft model on text and its target's distributions."""
    recipe = replace(recipe, teacher_share=teacher_share, teacher_from=teacher_from)
    run.train_model("draft", shape, recipe, job, vocab_size)


@train.command()
@run_flags
@click.option(
    "--target",
    help="A directory, a hub id or 'embedded'.  [default: OUT's target]",
)
@plan_flags
@recipe_flags(HEAD_RECIPE)
@job_flags
def eagle3(
    run: TrainingRun, target: str | None, plan: HeadPlan, recipe: TrainingRecipe, job: RunOptions
) -> None:
    """Train an EAGLE-3 head on a target's features and distributions."""
    from draftwood.lab.train.head_run import train_head

    train_head(run, target, plan, recipe, job)
