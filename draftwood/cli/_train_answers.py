"""``draftwood train answers``: answers of a chat model, as training text for its drafts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    evaluation_text,
    model_options,
    not_in_option,
)
from draftwood.cli._settings_flags import settings_flags
from draftwood.files import check_apart
from draftwood.lab.train.answer_recipe import AnswerRecipe

if TYPE_CHECKING:
    from draftwood.lab.overlap import EvaluationText
    from draftwood.lab.train.answers import Answer


def _part(context: click.Context, option: click.Parameter, text: str) -> tuple[int, int]:  # noqa: ARG001
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise click.BadParameter(f"{text!r}: write K/N with K from 1 to N, such as 1/2.")
    return int(number) - 1, int(count)


@click.command()
@click.option(
    "--prompts",
    type=PATH,
    required=True,
    help="JSON Lines with id, task and messages (role and content of each turn).",
)
@click.option("--out", type=PATH, required=True, help="Directory of the answers.")
@click.option(
    "--part",
    default="1/1",
    show_default=True,
    callback=_part,
    help="K/N: this process is number K of N, which share the work.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=32,
    show_default=True,
    help="Prompts decoded at once.",
)
@not_in_option
@settings_flags("recipe", AnswerRecipe())
@model_options
def answers(
    prompts: Path,
    out: Path,
    part: tuple[int, int],
    batch: int,
    not_in: str | None,
    recipe: AnswerRecipe,
    model: ModelOptions,
) -> None:
    """Answer prompts with a chat model: on-policy text for training its head or draft model.

    Prompts of even number are answered greedily, the others sampled. An interrupted run resumes at
    the first shard that is missing. When all shards are there, OUT/answers.txt.gz holds the prompts
    and answers as training text, without answers that overlap with the prompts of --not-in.
    """
    documents = out / "answers.txt.gz"
    check_apart([documents], [prompts])

    from draftwood.engine.engine import Engine
    from draftwood.lab.train.answers import answer, read_answers, read_prompts, write_documents

    found = read_prompts(prompts)
    evaluation = None if not_in is None else evaluation_text(not_in)
    if evaluation is not None:
        evaluation.refuse((f"prompt {each.id}", each.text) for each in found)
    loaded = model.load()
    engine = Engine(loaded.model, "ar", loaded.tokenizer, max_batch=batch)
    for path in answer(engine, loaded.tokenizer, found, out, recipe, part):
        click.echo(path)
    shards = sorted(out.glob("answers-*.jsonl"))
    if len(shards) == -(-len(found) // recipe.shard):
        given = [each for path in shards for each in read_answers(path)]
        kept = given if evaluation is None else _apart(given, evaluation)
        write_documents(loaded.tokenizer, found, kept, documents)
        tokens = sum(each.tokens for each in kept)
        left = f"; {len(given) - len(kept)} overlap with an evaluation prompt" if evaluation else ""
        click.echo(f"{documents}: {len(kept)} answers, {tokens:,} tokens{left}")


def _apart(answers: list[Answer], evaluation: EvaluationText) -> list[Answer]:
    """The answers that share no 13-gram with an evaluation prompt."""
    return [each for each in answers if evaluation.overlap((each.id, each.answer)) is None]
