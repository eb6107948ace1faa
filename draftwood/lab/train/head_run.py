"""Training of an EAGLE-3 head in a run directory, for its finished target or any other."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.evaluate import drafted_chains, held_out
from draftwood.lab.train.export import export_head
from draftwood.lab.train.head import describe, equalise_taps, frequent_tokens, new_head
from draftwood.lab.train.head_loss import STEP_DECAY, HeadLoss
from draftwood.lab.train.head_plan import HeadPlan
from draftwood.lab.train.head_target import check_lengths, load_teacher
from draftwood.lab.train.recipe import TrainingRecipe
from draftwood.lab.train.run_options import RunOptions
from draftwood.lab.train.training_run import TrainingRun

_ROWS, _LENGTH = 4, 512
"""Rows of text by which taps are scaled, and their tokens."""


def train_head(
    run: TrainingRun,
    target: str | None,
    plan: HeadPlan,
    recipe: TrainingRecipe,
    options: RunOptions,
) -> None:
    """Train a head in ``run.out/eagle3``, or resume it; see :meth:`TrainingRun.train`.

    :func:`draftwood.drafters.eagle3.checkpoint.load_head` reads the result.

    Args:
        run: run directory and texts.
        target: argument of :func:`draftwood.models.load`; None: the run's own target.
        plan: the head's sizes and unrolled steps.
        recipe: training settings.
        options: execution settings.

    Raises:
        DraftwoodError: there is no such target, the plan does not fit it, or the directory has
            another run.
    """
    teacher, tokenizer = load_teacher(run, target, options.mixed(run.device))
    config = plan.config(teacher)
    check_lengths(teacher, plan.unroll, recipe)
    domains = run.domains(tokenizer)
    drafted = frequent_tokens(domains, run.mixture, teacher.vocab_size, config.draft_vocab_size)
    head = new_head(config, teacher, drafted, recipe.seed, tied=plan.tied)
    if plan.fc_norm:
        main = max(domains, key=lambda domain: run.mixture.get(domain.name, 0.0))
        equalise_taps(head, teacher, _first_rows(main))
    shape, fingerprint = describe(config), teacher.fingerprint()

    def evaluate() -> dict[str, Any]:
        return {
            "shape": shape,
            "tied": plan.tied,
            "fc_norm": plan.fc_norm,
            "unroll": {"steps": plan.unroll, "decay": STEP_DECAY},
            "target": {"name": teacher.name, "fingerprint": fingerprint},
            **held_out(domains, tokenizer, partial(drafted_chains, head, teacher, plan.unroll)),
        }

    run.train(
        "eagle3",
        head,
        tokenizer,
        recipe,
        options,
        {
            "shape": shape,
            "tied": plan.tied,
            "unroll": plan.unroll,
            "target": fingerprint,
            **({"fc_norm": True} if plan.fc_norm else {}),
        },
        HeadLoss(head, teacher, plan.unroll, options.mixed(run.device)),
        evaluate,
        partial(export_head, tied=plan.tied),
    )


def _first_rows(domain: Domain) -> Tensor:
    """The first rows of a domain's training text; shorter ones if there is little of it."""
    length = min(_LENGTH, len(domain.train) // _ROWS)
    rows = np.asarray(domain.train[: _ROWS * length], dtype=np.int64)
    return torch.from_numpy(rows.reshape(_ROWS, length))
