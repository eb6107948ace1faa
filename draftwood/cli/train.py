"""`draftwood train`: flags in, runs out. What trains lies in the files beside this one."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from draftwood.cli._train_flags import (
    job_flags,
    plan_flags,
    recipe_flags,
    session_flags,
    shape_flags,
    vocabulary_flag,
)
from draftwood.lab.train.recipe import (
    DRAFT_RECIPE,
    DRAFT_SHAPE,
    HEAD_RECIPE,
    TARGET_RECIPE,
    TARGET_SHAPE,
    Recipe,
    Shape,
)

if TYPE_CHECKING:
    from draftwood.lab.train.head import HeadPlan
    from draftwood.lab.train.session import Job, Session


@click.group()
def train() -> None:
    """Train the models that ship with Draftwood, or an EAGLE-3 head for any target.

    A run that was stopped goes on where its last checkpoint left it. The target
    needs a tokenizer in OUT (made if there is none), the draft and the head a
    finished target.
    """
    logging.getLogger("draftwood.lab.train").setLevel(logging.INFO)


@train.command()
@session_flags
@vocabulary_flag
def tokenizer(session: Session, vocab_size: int) -> None:
    """Learn the tokenizer that target and draft share."""
    session.train_tokenizer(vocab_size)


@train.command()
@session_flags
@shape_flags(TARGET_SHAPE)
@recipe_flags(TARGET_RECIPE)
@job_flags
def target(session: Session, shape: Shape, recipe: Recipe, job: Job, vocab_size: int) -> None:
    """Train a small target on text."""
    session.train_model("target", shape, recipe, job, vocab_size)


@train.command()
@session_flags
@shape_flags(DRAFT_SHAPE)
@recipe_flags(DRAFT_RECIPE)
@click.option(
    "--teacher-share",
    default=DRAFT_RECIPE.teacher_share,
    show_default=True,
    help="Weight of the target's distribution.",
)
@click.option(
    "--teacher-from",
    default=DRAFT_RECIPE.teacher_from,
    show_default=True,
    help="Share of the updates after which the target teaches.",
)
@job_flags
def draft(
    session: Session,
    shape: Shape,
    recipe: Recipe,
    job: Job,
    vocab_size: int,
    teacher_share: float,
    teacher_from: float,
) -> None:
    """Train a draft model on text and on what the target of OUT says of it."""
    recipe = replace(recipe, teacher_share=teacher_share, teacher_from=teacher_from)
    session.train_model("draft", shape, recipe, job, vocab_size)


@train.command()
@session_flags
@click.option(
    "--target",
    help="'embedded', a directory or a hub id; OUT's finished target if not given.",
)
@plan_flags
@recipe_flags(HEAD_RECIPE)
@job_flags
def eagle3(session: Session, target: str | None, plan: HeadPlan, recipe: Recipe, job: Job) -> None:
    """Train an EAGLE-3 head on what a target says of text, unrolled as when drafting."""
    from draftwood.lab.train.head_session import train_head

    train_head(session, target, plan, recipe, job)
