"""``draftwood train``: trains heads for a model, or the models in the package."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from draftwood.cli._settings_flags import settings_flags
from draftwood.cli._train_answers import answers
from draftwood.cli._train_flags import run_flags, vocabulary_flag
from draftwood.lab.train.dflash_plan import DFlashPlan
from draftwood.lab.train.head_plan import HeadPlan
from draftwood.lab.train.medusa_plan import MedusaPlan
from draftwood.lab.train.recipe import (
    DRAFT_RECIPE,
    DRAFT_SHAPE,
    HEAD_RECIPE,
    TARGET_RECIPE,
    TARGET_SHAPE,
    VOCABULARY,
    ModelShape,
    TrainingRecipe,
)
from draftwood.lab.train.run_options import RunOptions

if TYPE_CHECKING:
    from draftwood.lab.train.training_run import TrainingRun

_TEACHER = ("teacher_share", "teacher_from")
_options_flags = settings_flags("options", RunOptions())
_recipe_flags = settings_flags("recipe", HEAD_RECIPE, without=_TEACHER)
_target_option = click.option(
    "--target",
    help="A directory, a hub id, 'embedded' or 'smollm2'.  [default: OUT's target]",
)


@click.group()
def train() -> None:
    """Train heads or a DFlash drafter for any model, or the models in the package.

    A head learns best from text that its target wrote: ``answers`` collects it.

    An interrupted run resumes at its last checkpoint. A target needs a tokenizer in OUT (trained if
    there is none); a draft model and a head need a finished target.
    """
    logging.getLogger("draftwood.lab.train").setLevel(logging.INFO)


train.add_command(answers)


@train.command()
@run_flags
@vocabulary_flag
def tokenizer(run: TrainingRun, vocab_size: int | None) -> None:
    """Train the tokenizer of target and draft model."""
    run.train_tokenizer(vocab_size or VOCABULARY)


@train.command()
@run_flags
@vocabulary_flag
@settings_flags("shape", TARGET_SHAPE)
@settings_flags("recipe", TARGET_RECIPE, without=_TEACHER)
@_options_flags
def target(
    run: TrainingRun,
    shape: ModelShape,
    recipe: TrainingRecipe,
    options: RunOptions,
    vocab_size: int | None,
) -> None:
    """Train a small target on text."""
    from draftwood.lab.train.text_run import train_model

    train_model(run, "target", shape, recipe, options, vocab_size)


@train.command()
@run_flags
@vocabulary_flag
@settings_flags("shape", DRAFT_SHAPE)
@settings_flags("recipe", DRAFT_RECIPE)
@_options_flags
def draft(
    run: TrainingRun,
    shape: ModelShape,
    recipe: TrainingRecipe,
    options: RunOptions,
    vocab_size: int | None,
) -> None:
    """Train a draft model on text and its target's distributions."""
    from draftwood.lab.train.text_run import train_model

    train_model(run, "draft", shape, recipe, options, vocab_size)


@train.command()
@run_flags
@_target_option
@settings_flags("plan", HeadPlan())
@_recipe_flags
@_options_flags
def eagle3(
    run: TrainingRun,
    target: str | None,
    plan: HeadPlan,
    recipe: TrainingRecipe,
    options: RunOptions,
) -> None:
    """Train an EAGLE-3 head on a target's features and distributions."""
    from draftwood.lab.train.head_run import train_head

    train_head(run, target, plan, recipe, options)


@train.command()
@run_flags
@_target_option
@settings_flags("plan", MedusaPlan())
@_recipe_flags
@_options_flags
def medusa(
    run: TrainingRun,
    target: str | None,
    plan: MedusaPlan,
    recipe: TrainingRecipe,
    options: RunOptions,
) -> None:
    """Train Medusa heads on a target's last hidden states and distributions."""
    from draftwood.lab.train.medusa_run import train_medusa

    train_medusa(run, target, plan, recipe, options)


@train.command()
@run_flags
@_target_option
@settings_flags("plan", DFlashPlan())
@_recipe_flags
@_options_flags
def dflash(
    run: TrainingRun,
    target: str | None,
    plan: DFlashPlan,
    recipe: TrainingRecipe,
    options: RunOptions,
) -> None:
    """Train a DFlash drafter on a target's hidden states and distributions."""
    from draftwood.lab.train.dflash_run import train_dflash

    train_dflash(run, target, plan, recipe, options)
