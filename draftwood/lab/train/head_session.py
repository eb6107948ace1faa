"""Training an EAGLE-3 head in a run directory, for its finished target or for any other.

Everything that can be refused is, before texts are tokenised and before a step is trained.
"""

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
from draftwood.lab.train.recipe import Recipe
from draftwood.lab.train.session import Job, Session
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.tokenizer import fingerprint
from draftwood.lab.train.trainer import Outcome, Trainer

logger = logging.getLogger(__name__)

_WHAT = "eagle3"


def train_head(
    session: Session, target: str | None, plan: HeadPlan, recipe: Recipe, job: Job
) -> bool:
    """Train a head, or go on training it, in ``session.out/eagle3``; True where it is finished.

    It is judged and written as :meth:`Session.train_model` does it, to be read by
    :func:`draftwood.drafters.eagle3.checkpoint.load_head`.

    Args:
        session: the run directory and the texts.
        target: what :func:`draftwood.models.load` takes; None: the session's own.
        plan: the head's sizes, and how far it is unrolled.
        recipe: how it is trained.
        job: how that is carried out.

    Raises:
        DraftwoodError: there is no such target, the plan does not fit it, or another run has
            been started in that directory.
    """
    teacher, tokenizer = _load(session, target)
    config = plan.config(teacher)
    _check_lengths(teacher, plan.unroll, recipe)
    domains = session.domains(tokenizer)
    batches = Batches(domains, session.mixture, recipe.length, recipe.seed)
    drafted = frequent_tokens(domains, session.mixture, teacher.vocab_size, config.draft_vocab_size)
    head = new_head(config, teacher, drafted, recipe.seed)
    identity = {
        "shape": describe(config),
        "unroll": plan.unroll,
        "target": teacher.fingerprint(),
        **session.identity(tokenizer),
    }
    trainer = Trainer(
        session.out / _WHAT,
        head,
        recipe,
        batches,
        identity,
        HeadLoss(head, teacher, plan.unroll, job.mixed),
        job.micro_tokens,
        job.workers,
    )
    outcome = session.carry_out(_WHAT, trainer, job)
    if outcome is Outcome.INTERRUPTED:
        return False
    head.train(mode=False)
    judged = {d.name: asdict(acceptance(head, teacher, plan.unroll, d)) for d in domains}
    logger.info("held out: %s", judged)
    facts = {
        "shape": describe(config),
        "unroll": {"steps": plan.unroll, "decay": STEP_DECAY},
        "target": {"name": teacher.name, "fingerprint": identity["target"]},
        "tokenizer_sha256": fingerprint(tokenizer),
        "held_out": judged,
    }
    record = session.record(_WHAT, trainer, outcome, job, facts)
    for directory in session.places(_WHAT, job):
        export_head(head, record, directory)
        logger.info("%s written to %s", _WHAT, directory)
    return outcome is Outcome.FINISHED


def _load(session: Session, target: str | None) -> tuple[Teacher, PreTrainedTokenizerFast]:
    """The target, and its tokenizer, which for the session's own is the one its cache is of."""
    own = session.out / "target" / "model"
    if target is None and not is_finished(own):
        raise DraftwoodError(
            f"There is no finished target in {own} for the head to draft for; "
            "train the target first or name another with --target."
        )
    # On a CPU, matrix products in bfloat16 are for those who ask for them.
    dtype = "float32" if session.device.type == "cpu" else "auto"
    loaded = models.load(target or str(own), dtype=dtype, device=str(session.device))
    tokenizer = loaded.tokenizer
    # Paths tell of the machine, and are the same target wherever it lies.
    name = "target" if target is None else Path(target).name if Path(target).is_dir() else target
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise DraftwoodError(
            f"The tokenizer of {name} is not a fast one (tokenizer.json), which training needs to "
            "read much text; give another --target."
        )
    teacher = Teacher(loaded.model, name)
    if len(tokenizer) > teacher.vocab_size:
        raise DraftwoodError(
            f"The tokenizer of {name} has {len(tokenizer)} tokens, but its logits only "
            f"{teacher.vocab_size}; give another --target."
        )
    return teacher, tokenizer


def _check_lengths(teacher: Teacher, steps: int, recipe: Recipe) -> None:
    shortest = recipe.length // 2 if recipe.short_share > 0.0 else recipe.length
    if shortest < steps:
        raise DraftwoodError(
            f"Rows of {shortest} tokens are too short to unroll {steps} steps in; "
            "give a longer --length."
        )
    longest = recipe.length // 2 if recipe.short_share == 1.0 else recipe.length
    limit = getattr(teacher.config, "max_position_embeddings", None)
    if limit is not None and longest >= limit:
        raise DraftwoodError(
            f"Rows of {longest} tokens and the next do not fit into {teacher.name}, which reads "
            f"{limit}; give a shorter --length."
        )
