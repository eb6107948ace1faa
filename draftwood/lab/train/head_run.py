"""Trains an EAGLE-3 head in a run directory, for its finished target or any other."""

import logging
from dataclasses import asdict
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from draftwood import models
from draftwood.errors import DraftwoodError
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.evaluate import acceptance
from draftwood.lab.train.export import export_head, is_finished
from draftwood.lab.train.head import HeadPlan, describe, frequent_tokens, new_head
from draftwood.lab.train.loss import STEP_DECAY, HeadLoss
from draftwood.lab.train.recipe import TrainingRecipe
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.tokenizer import fingerprint
from draftwood.lab.train.trainer import RunEnd, Trainer
from draftwood.lab.train.training_run import RunOptions, TrainingRun

logger = logging.getLogger(__name__)

_NAME = "eagle3"


def train_head(
    run: TrainingRun, target: str | None, plan: HeadPlan, recipe: TrainingRecipe, job: RunOptions
) -> bool:
    """Train a head in ``run.out/eagle3``, or resume it; returns whether it is finished.

    The head is evaluated and written as in :meth:`TrainingRun.train_model`, for
    :func:`draftwood.drafters.eagle3.checkpoint.load_head`.

    Args:
        run: run directory and texts.
        target: argument of :func:`draftwood.models.load`; None: the run's own target.
        plan: the head's sizes and unrolled steps.
        recipe: training settings.
        job: execution settings.

    Raises:
        DraftwoodError: there is no such target, the plan does not fit it, or the directory has
            another run.
    """
    teacher, tokenizer = _load(run, target)
    config = plan.config(teacher)
    _check_lengths(teacher, plan.unroll, recipe)
    domains = run.domains(tokenizer)
    batches = Batches(domains, run.mixture, recipe.length, recipe.seed)
    drafted = frequent_tokens(domains, run.mixture, teacher.vocab_size, config.draft_vocab_size)
    head = new_head(config, teacher, drafted, recipe.seed)
    identity = {
        "shape": describe(config),
        "unroll": plan.unroll,
        "target": teacher.fingerprint(),
        **run.identity(tokenizer),
    }
    trainer = Trainer(
        run.out / _NAME,
        head,
        recipe,
        batches,
        identity,
        HeadLoss(head, teacher, plan.unroll, job.mixed),
        job.micro_tokens,
        job.workers,
    )
    outcome = run.execute(_NAME, trainer, job)
    if outcome is RunEnd.INTERRUPTED:
        return False
    head.train(mode=False)
    evaluation = {d.name: asdict(acceptance(head, teacher, plan.unroll, d)) for d in domains}
    logger.info("held out: %s", evaluation)
    facts = {
        "shape": describe(config),
        "unroll": {"steps": plan.unroll, "decay": STEP_DECAY},
        "target": {"name": teacher.name, "fingerprint": identity["target"]},
        "tokenizer_sha256": fingerprint(tokenizer),
        "held_out": evaluation,
    }
    record = run.record(_NAME, trainer, outcome, job, facts)
    for directory in run.places(_NAME, job):
        export_head(head, record, directory)
        logger.info("%s written to %s", _NAME, directory)
    return outcome is RunEnd.FINISHED


def _load(run: TrainingRun, target: str | None) -> tuple[Teacher, PreTrainedTokenizerFast]:
    """Load the target and its tokenizer."""
    own = run.out / "target" / "model"
    if target is None and not is_finished(own):
        raise DraftwoodError(
            f"There is no finished target in {own} for the head to draft for; "
            "train the target first or name another with --target."
        )
    # On a CPU, bfloat16 only on request: it is slow.
    dtype = "float32" if run.device.type == "cpu" else "auto"
    loaded = models.load(target or str(own), dtype=dtype, device=str(run.device))
    tokenizer = loaded.tokenizer
    # The record shows no paths of this machine.
    name = "target" if target is None else Path(target).name if Path(target).is_dir() else target
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise DraftwoodError(
            f"The tokenizer of {name} is not a fast one (tokenizer.json), which training needs; "
            "give another --target."
        )
    teacher = Teacher(loaded.model, name)
    if len(tokenizer) > teacher.vocab_size:
        raise DraftwoodError(
            f"The tokenizer of {name} has {len(tokenizer)} tokens and its logits only "
            f"{teacher.vocab_size}; give another --target."
        )
    return teacher, tokenizer


def _check_lengths(teacher: Teacher, steps: int, recipe: TrainingRecipe) -> None:
    shortest = recipe.length // 2 if recipe.short_share > 0.0 else recipe.length
    if shortest < steps:
        raise DraftwoodError(
            f"Rows of {shortest} tokens are too short to unroll {steps} steps; "
            "give a longer --length."
        )
    longest = recipe.length // 2 if recipe.short_share == 1.0 else recipe.length
    limit = getattr(teacher.config, "max_position_embeddings", None)
    if limit is not None and longest >= limit:
        raise DraftwoodError(
            f"Rows of {longest} tokens and the next one exceed the context of {teacher.name}, "
            f"{limit} tokens; give a shorter --length."
        )
