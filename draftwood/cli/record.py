"""``draftwood record``: decodes prompts plainly and keeps every row of the target."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from draftwood.cli._options import load_model, model_options
from draftwood.files import check_writable
from draftwood.lab.bench.prompts import read, sources
from draftwood.sampling.params import SamplingParams


@click.command()
@click.option("--prompts", required=True, metavar="FILE[,FILE]", help="As for 'draftwood bench'.")
@click.option("--limit", type=click.IntRange(1), help="Most prompts of each set, evenly spaced.")
@model_options
@click.option(
    "--max-new-tokens",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    help="Most tokens to generate for a prompt.",
)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=int, default=0, show_default=True, help="0 is off.")
@click.option(
    "--top-p",
    type=float,
    default=1.0,
    show_default=True,
    help="Keep the fewest tokens of this probability.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first prompt.")
@click.option(
    "--top",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Tokens kept of every row; at least what a drafter will read.",
)
@click.option(
    "--chat/--no-chat",
    default=None,
    help="The chat template for all prompts, or for none (else: for dialogues, if there is one).",
)
@click.option("--truncate", type=click.IntRange(1), help="Keep the last N tokens of long prompts.")
@click.option(
    "--out", "output", type=click.Path(path_type=Path), required=True, help="Write it here."
)
def record(
    prompts: str,
    limit: int | None,
    model: str,
    dtype: str,
    device: str,
    threads: int | None,
    trust_remote_code: bool,
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
    """Decode prompts plainly and keep what the model said, for 'draftwood replay'.

    Prompts, contexts and seeds are those of 'draftwood bench'.
    """
    check_writable(output)

    from draftwood.lab.replay.file import digest, write
    from draftwood.lab.replay.recorder import Recorder
    from draftwood.lab.replay.recording import Asked, ModelFacts, Recording
    from draftwood.runner.attach import attach

    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    members = read(sources(prompts), limit)
    loaded = load_model(model, dtype, device, threads, trust_remote_code=trust_remote_code)
    # Before it is attached, which lays weights out anew.
    weights = digest(loaded.model)
    target = attach(loaded.model)
    info = target.info
    sampling.validate(info.vocab_size)
    facts = ModelFacts(
        name=loaded.name,
        revision=getattr(loaded.model.config, "_commit_hash", None),
        dtype=str(info.dtype).removeprefix("torch."),
        digest=weights,
        vocab_size=info.vocab_size,
        context_limit=info.context_limit,
        layers=info.layers,
        hidden_size=info.hidden_size,
    )
    asked = Asked(
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
    recorder = Recorder(target, loaded.tokenizer, asked)
    recorder.check(members)
    progress = track(members, "recording", console=Console(stderr=True), transient=True)
    found = [recorder.record(number, member) for number, member in enumerate(progress)]
    recording = Recording(facts, recorder.asked, found)
    write(output, recording)
    texts = [text for one in found for text in one.texts]
    click.echo(
        f"{output}: {len(found)} prompts, {sum(text.answer for text in texts)} tokens, "
        f"{recording.size} rows of {recorder.asked.width}"
    )
