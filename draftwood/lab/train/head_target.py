"""The target of a head that is trained, and what it allows."""

from transformers import PreTrainedTokenizerFast

from draftwood import models
from draftwood.errors import DraftwoodError
from draftwood.files import public_name
from draftwood.lab.train.export import is_finished
from draftwood.lab.train.recipe import TrainingRecipe
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.training_run import TrainingRun


def load_teacher(
    run: TrainingRun, target: str | None, mixed: bool
) -> tuple[Teacher, PreTrainedTokenizerFast]:
    """Load the target of heads, in bfloat16 if ``mixed``, and its tokenizer.

    Args:
        run: the run.
        target: argument of :func:`draftwood.models.load`; None: the run's own target.
        mixed: whether matrix products run in bfloat16.

    Raises:
        DraftwoodError: there is no such target, or its tokenizer does not serve.
    """
    own = run.out / "target" / "model"
    if target is None and not is_finished(own):
        raise DraftwoodError(
            f"There is no finished target in {own} for the head to draft for; "
            "train the target first or name another with --target."
        )
    dtype = "bfloat16" if mixed else "float32"
    loaded = models.load(target or str(own), dtype=dtype, device=str(run.device))
    if mixed and run.device.type == "cpu":
        # PyTorch 2.13's fused attention in bfloat16 takes twice the time of plain products there.
        loaded.model.set_attn_implementation("eager")
    tokenizer = loaded.tokenizer
    # The record shows no paths of this machine.
    name = "target" if target is None else public_name(target)
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


def check_lengths(teacher: Teacher, steps: int, recipe: TrainingRecipe) -> None:
    """Check that rows of text are long enough for the steps, and not too long for the target.

    Raises:
        DraftwoodError: they are not.
    """
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
