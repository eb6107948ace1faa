"""Training of Medusa heads in a run directory, for its finished target or any other."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.drafters.medusa.heads import MedusaHeads
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.evaluate import DraftedChains, chains_of, held_out
from draftwood.lab.train.export import export_medusa
from draftwood.lab.train.head import frequent_tokens
from draftwood.lab.train.head_loss import STEP_DECAY, DraftLabels
from draftwood.lab.train.head_plan import most_drafted
from draftwood.lab.train.head_target import check_lengths, load_teacher
from draftwood.lab.train.medusa_loss import MedusaLoss
from draftwood.lab.train.medusa_plan import MedusaPlan
from draftwood.lab.train.recipe import TrainingRecipe
from draftwood.lab.train.run_options import RunOptions
from draftwood.lab.train.teacher import TargetStates, Teacher
from draftwood.lab.train.training_run import TrainingRun


def train_medusa(
    run: TrainingRun,
    target: str | None,
    plan: MedusaPlan,
    recipe: TrainingRecipe,
    options: RunOptions,
) -> None:
    """Train heads in ``run.out/medusa``, or resume them; see :meth:`TrainingRun.train`.

    :func:`draftwood.drafters.medusa.checkpoint.load_medusa` reads the result.

    Args:
        run: run directory and texts.
        target: argument of :func:`draftwood.models.load`; None: the run's own target.
        plan: the heads' sizes.
        recipe: training settings.
        options: execution settings.

    Raises:
        DraftwoodError: there is no such target, the plan does not fit it, or the directory has
            another run.
    """
    teacher, tokenizer = load_teacher(run, target, options.mixed(run.device))
    count = most_drafted(plan.draft_vocab, teacher.vocab_size)
    check_lengths(teacher, plan.heads, recipe)
    domains = run.domains(tokenizer)
    drafted = frequent_tokens(domains, run.mixture, teacher.vocab_size, count)
    heads = new_medusa(plan, teacher, drafted)
    labels = DraftLabels(heads.token_ids, teacher.vocab_size)
    shape = {"heads": plan.heads, "layers": plan.layers, "draft_vocab": count}
    fingerprint = teacher.fingerprint()

    def evaluate() -> dict[str, Any]:
        return {
            "shape": shape,
            "decay": STEP_DECAY,
            "target": {"name": teacher.name, "fingerprint": fingerprint},
            **held_out(domains, tokenizer, partial(medusa_chains, heads, teacher, labels)),
        }

    run.train(
        "medusa",
        heads,
        tokenizer,
        recipe,
        options,
        {"shape": shape, "target": fingerprint},
        MedusaLoss(heads, teacher, labels, options.mixed(run.device)),
        evaluate,
        export_medusa,
    )


def new_medusa(plan: MedusaPlan, teacher: Teacher, drafted: NDArray[np.int64]) -> MedusaHeads:
    """Initialise float32 heads on the target's device, which at first say what the target says.

    Their blocks begin at zero. Their common output has the target's rows, and stays as it is.

    Args:
        plan: their sizes.
        teacher: the target.
        drafted: draft vocabulary: target ids [draft_vocab], ascending.
    """
    width = teacher.head.shape[1]
    heads = MedusaHeads(plan.heads, plan.layers, width, len(drafted), common=True)
    with torch.no_grad():
        for parameter in heads.blocks.parameters():
            parameter.zero_()
        ids = torch.from_numpy(drafted)
        heads.token_ids.copy_(ids)
        output = heads.lm_heads[0].weight
        output.copy_(teacher.head[ids.to(teacher.head.device)])  # type: ignore[operator]
    heads.lm_heads.requires_grad_(False)
    return heads.to(teacher.head.device)


def medusa_chains(
    heads: MedusaHeads, teacher: Teacher, labels: DraftLabels, domain: Domain
) -> DraftedChains:
    """Chains of the heads from every position of held-out text."""
    steps = len(heads.blocks)

    def scores(reading: TargetStates, tokens: Tensor, count: int) -> Iterator[Tensor]:  # noqa: ARG001
        states = reading.last[:, :count]
        logits = heads(states.flatten(0, 1)).unflatten(0, states.shape[:2])
        yield from logits.unbind(2)

    return chains_of(scores, labels, teacher, (), steps, domain)
