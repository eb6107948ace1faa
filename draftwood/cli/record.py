"""``draftwood record``: decodes prompts once and records the model's output."""

from __future__ import annotations

from pathlib import Path

import click

from draftwood.cli._options import (
    PATH,
    ModelOptions,
    chat_option,
    limit_option,
    max_new_tokens_option,
    model_options,
    not_in_option,
    progress,
    prompts_option,
    refuse_overlapping_prompts,
    temperature_option,
    top_k_option,
    top_p_option,
    truncate_option,
)
from draftwood.cli._sections import Command
from draftwood.files import check_output
from draftwood.lab.bench.prompts import files, read, sources
from draftwood.sampling.params import SamplingParams


@click.command(cls=Command)
@prompts_option
@limit_option
@not_in_option
@model_options
@max_new_tokens_option()
@temperature_option
@top_k_option
@top_p_option
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the first prompt.")
@click.option(
    "--top",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Tokens recorded per row; at least as many as drafters read.",
)
@chat_option
@truncate_option
@click.option("--out", "output", type=PATH, required=True, help="Recording to write.")
def record(
    prompts: str,
    limit: int | None,
    not_in: str | None,
    model: ModelOptions,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    top: int,
    chat: bool | None,
    truncate: int | None,
    output: Path,
) -> None:
    """Decode prompts once and record the model's output.

    'draftwood replay' reads the recording. Prompts, contexts and seeds are those of 'draftwood
    bench'. An interrupted run writes the prompts that are done.
    """
    check_output(output, [*files(prompts), *files(not_in)])

    from draftwood.lab.bench.stopping import stoppable
    from draftwood.lab.replay.file import digest, write
    from draftwood.lab.replay.recorder import Recorder, model_facts
    from draftwood.lab.replay.recording import RecordedPrompt, Recording, RecordingSettings
    from draftwood.runner.attach import attach

    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    members = read(sources(prompts), limit)
    refuse_overlapping_prompts(not_in, members)
    loaded = model.load()
    weights = digest(loaded.model)  # before attaching, which may change the layout of weights
    target = attach(loaded.model)
    sampling.validate(target.info.vocab_size)
    settings = RecordingSettings(
        max_new_tokens=max_new_tokens,
        eos=tuple(sorted(loaded.eos)),
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        width=top,
        chat=chat,
        truncate=truncate,
    )
    recorder = Recorder(target, loaded.tokenizer, settings)
    recorder.check(members)
    found: list[RecordedPrompt] = []
    try:
        with stoppable():
            for number, member in enumerate(progress(members, "recording")):
                found.append(recorder.record(number, member))
    finally:  # write the prompts that are done, even if interrupted
        if found:
            facts = model_facts(loaded, weights, target.info)
            recording = Recording(facts, recorder.settings, found)
            write(output, recording)
            of = f" of {len(members)}" if len(found) < len(members) else ""
            tokens = sum(text.answer for one in found for text in one.texts)
            click.echo(
                f"{output}: {len(found)}{of} prompts, {tokens} tokens, "
                f"{recording.size} rows of {recorder.settings.width}"
            )
