"""Training of the target or its draft model in a run directory."""

import logging
from dataclasses import asdict
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.lab.train.evaluate import agreement, greedy_loops, held_out_loss
from draftwood.lab.train.export import export_model, is_finished, load_exported
from draftwood.lab.train.recipe import ModelShape, TrainingRecipe
from draftwood.lab.train.run_options import RunOptions
from draftwood.lab.train.teacher import weights_digest
from draftwood.lab.train.text_model import TextLoss, TextModel, new_model
from draftwood.lab.train.tokenizer import fingerprint, load_tokenizer
from draftwood.lab.train.training_run import TrainingRun

logger = logging.getLogger(__name__)


def train_model(
    run: TrainingRun,
    name: str,
    shape: ModelShape,
    recipe: TrainingRecipe,
    options: RunOptions,
    vocab_size: int | None,
) -> None:
    """Train the model ``name`` in a run directory, or resume it; see :meth:`TrainingRun.train`.

    Args:
        run: run directory and texts.
        name: ``"target"`` or ``"draft"``.
        shape: sizes of the model.
        recipe: training settings; with a ``teacher_share``, the run's target is the teacher.
        options: execution settings.
        vocab_size: of the tokenizer; None: that of the one in the directory, if there is one.

    Raises:
        DraftwoodError: there is no finished target to learn from, it has another tokenizer, or the
            directory has another run.
    """
    tokenizer = run.tokenizer(vocab_size)
    teacher = _teacher(run, tokenizer) if recipe.teacher_share > 0.0 else None
    model = new_model(shape, len(tokenizer), recipe.seed)
    torch.nn.Module.to(model, run.device)

    def evaluate() -> dict[str, Any]:
        found: dict[str, Any] = {"shape": _sizes(shape), "held_out": {}}
        domains = run.domains(tokenizer)
        for domain in domains:
            figures = asdict(held_out_loss(model, tokenizer, domain))
            found["held_out"][domain.name] = figures | asdict(greedy_loops(model, domain))
        if teacher is not None:
            found["teacher"] = {d.name: asdict(agreement(model, teacher, d)) for d in domains}
        logger.info("held out: %s", found)
        return found

    run.train(
        name,
        model,
        tokenizer,
        recipe,
        options,
        {"shape": _sizes(shape)}
        | ({} if teacher is None else {"teacher": weights_digest(teacher)}),
        TextLoss(model, recipe, teacher, options.mixed(run.device)),
        evaluate,
        lambda trained, record, directory: export_model(trained, tokenizer, record, directory),
    )


def _sizes(shape: ModelShape) -> dict[str, int]:
    """The sizes as they are recorded: of a Llama, without those that it does not have."""
    return {name: size for name, size in asdict(shape).items() if size or name != "recurrent"}


def _teacher(run: TrainingRun, tokenizer: PreTrainedTokenizerFast) -> TextModel:
    directory = run.out / "target" / "model"
    if not is_finished(directory):
        raise DraftwoodError(
            f"There is no finished target in {directory} for the draft to learn from; "
            "train the target first or pass --teacher-share 0."
        )
    if fingerprint(load_tokenizer(directory)) != fingerprint(tokenizer):
        raise DraftwoodError(
            f"The target in {directory} has another tokenizer than {run.out / 'tokenizer'}; train "
            "the target anew, or use another --out."
        )
    return load_exported(directory, run.device)
