"""Training of a DFlash drafter in a run directory, for its finished target or any other."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.drafters.dflash.network import DFlashNetwork, Stored
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.dflash_loss import BlockLoss, drafted_blocks
from draftwood.lab.train.dflash_plan import DFlashPlan
from draftwood.lab.train.evaluate import DraftedChains, chains_of, held_out
from draftwood.lab.train.export import export_dflash
from draftwood.lab.train.head import frequent_tokens
from draftwood.lab.train.head_loss import STEP_DECAY, DraftLabels
from draftwood.lab.train.head_plan import most_drafted
from draftwood.lab.train.head_target import check_lengths, load_teacher
from draftwood.lab.train.recipe import TrainingRecipe
from draftwood.lab.train.run_options import RunOptions
from draftwood.lab.train.teacher import TargetStates, Teacher
from draftwood.lab.train.training_run import TrainingRun


def train_dflash(
    run: TrainingRun,
    target: str | None,
    plan: DFlashPlan,
    recipe: TrainingRecipe,
    options: RunOptions,
) -> None:
    """Train a drafter in ``run.out/dflash``, or resume it; see :meth:`TrainingRun.train`.

    :func:`draftwood.drafters.dflash.checkpoint.load_dflash` reads the result.

    Args:
        run: run directory and texts.
        target: argument of :func:`draftwood.models.load`; None: the run's own target.
        plan: the drafter's sizes.
        recipe: training settings.
        options: execution settings.

    Raises:
        DraftwoodError: there is no such target, the plan does not fit it, or the directory has
            another run.
    """
    teacher, tokenizer = load_teacher(run, target, options.mixed(run.device))
    raw = plan.raw(teacher)
    count = most_drafted(plan.draft_vocab, teacher.vocab_size)
    check_lengths(teacher, plan.block, recipe)
    domains = run.domains(tokenizer)
    drafted = frequent_tokens(domains, run.mixture, teacher.vocab_size, count)
    network = new_dflash(plan, teacher, drafted, recipe.seed)
    labels = DraftLabels(network.token_ids, teacher.vocab_size)
    shape = {**raw, "draft_vocab": count}
    fingerprint = teacher.fingerprint()

    def evaluate() -> dict[str, Any]:
        return {
            "shape": shape,
            "anchors": plan.anchors,
            "decay": STEP_DECAY,
            "target": {"name": teacher.name, "fingerprint": fingerprint},
            **held_out(domains, tokenizer, partial(block_chains, network, teacher, labels)),
        }

    run.train(
        "dflash",
        network,
        tokenizer,
        recipe,
        options,
        {"shape": shape, "anchors": plan.anchors, "target": fingerprint},
        BlockLoss(network, teacher, labels, plan.anchors, options.mixed(run.device)),
        evaluate,
        partial(export_dflash, raw=raw),
    )


def new_dflash(
    plan: DFlashPlan, teacher: Teacher, drafted: NDArray[np.int64], seed: int
) -> DFlashNetwork:
    """Initialise a float32 network on the target's device.

    Its residual branches begin at zero. Its output has the target's rows, and stays as it is. Masks
    have an embedding of their own, which begins as the mean of the target's.

    Args:
        plan: its sizes.
        teacher: the target, whose embedding it shares.
        drafted: draft vocabulary: target ids [draft_vocab], ascending.
        seed: of the random weights.
    """
    torch.manual_seed(seed)
    network = DFlashNetwork(plan.config(teacher), Stored(outputs=len(drafted), mask=True))
    embedding = teacher.model.get_input_embeddings()
    table: Tensor = embedding.weight
    ids = torch.from_numpy(drafted)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
            elif parameter.dim() == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
        network.token_ids.copy_(ids)
        network.mask_embedding.copy_(table.float().mean(0))
        network.lm_head.weight.copy_(teacher.head[ids.to(teacher.head.device)])
    network.lm_head.requires_grad_(False)
    network.to(teacher.head.device)
    network.share(embedding, None, teacher.vocab_size)
    return network


def block_chains(
    network: DFlashNetwork, teacher: Teacher, labels: DraftLabels, domain: Domain
) -> DraftedChains:
    """Chains of the network's blocks behind every position of held-out text."""
    steps, at_once = network.config.drafted, 64

    def scores(reading: TargetStates, tokens: Tensor, count: int) -> Iterator[Tensor]:
        found = []
        for first in range(1, count + 1, at_once):
            places = torch.arange(first, min(first + at_once, count + 1), device=tokens.device)
            every = places.expand(len(tokens), -1)
            found.append(drafted_blocks(network, reading.features.float(), tokens, every))
        blocks = torch.cat(found, dim=1)
        for slot in range(steps):
            yield network.lm_head(blocks[:, :, slot])

    return chains_of(scores, labels, teacher, network.config.taps, steps, domain)
