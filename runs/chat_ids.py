"""Writes the token ids of prompts as chats: a JSON list of lists for each set, called after it.

For scripts that decode with another engine, in an environment that has no Draftwood to read them.

    python runs/chat_ids.py smollm2 --prompts mt_bench.jsonl,gsm8k_test.jsonl --out directory
"""

import json
from itertools import groupby
from pathlib import Path

import click
from transformers import AutoTokenizer

from draftwood import models
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.prompts import read, sources


@click.command()
@click.argument("model")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--prompts", required=True, help="files, with commas between them")
@click.option("--limit", default=8, help="most prompts of a set")
@click.option("--truncate", default=1024, help="longer ones are left out")
def main(model: str, prompts: str, out: Path, limit: int, truncate: int) -> None:
    """Write the first turns of PROMPTS, in the chat template of a MODEL, into OUT."""
    tokenizer = AutoTokenizer.from_pretrained(models.location(model))
    out.mkdir(parents=True, exist_ok=True)
    contexts = Contexts(tokenizer, truncate + 1, 1, chat=True)  # with room for an answer
    for name, members in groupby(read(sources(prompts), limit), key=lambda prompt: prompt.set):
        turns = [contexts.after(prompt, ()) for prompt in members]
        short = [turn.ids for turn in turns if not turn.cut]
        if not short:
            raise click.ClickException(f"{name}: all prompts are longer than {truncate} tokens")
        (out / f"{name}.json").write_text(json.dumps(short))
        click.echo(f"{name}: {len(short)} prompts, {sum(map(len, short))} tokens", err=True)


if __name__ == "__main__":
    main()
