"""Time to the first token by the length of the prompt, of methods and of other libraries.

Prints one JSON object. Run it on a quiet machine:

    python runs/first_token.py --model smollm2 --dtype float32 --methods ar,auto,hf,llamacpp

Prompts are parts of docs/bench.md. All methods answer a prompt before the next one.
"""

import json
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
import torch

from draftwood import load
from draftwood.costs.busy import watched
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contenders import OwnChoice, Stage, choose
from draftwood.lab.bench.measure import Contender
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded

TEXT = Path(__file__).parents[1] / "docs" / "bench.md"

Prompt = tuple[int, ...]


def prompts_of(ids: Sequence[int], length: int, count: int) -> list[Prompt]:
    """Parts of a text, as far from one another as it allows.

    Raises:
        DraftwoodError: the text is shorter.
    """
    if len(ids) < length:
        raise DraftwoodError(f"{TEXT.name} has {len(ids)} tokens, fewer than {length}")
    apart = (len(ids) - length) // max(1, count - 1)
    return [tuple(ids[i * apart : i * apart + length]) for i in range(count)]


def first_token(contender: Contender, prompt: Prompt) -> tuple[float, int]:
    """Milliseconds to the first token, by a method that has seen nothing before, and the token."""
    [answer] = contender.begin(1)([Request(prompt, max_new_tokens=2, eos=())])
    return answer.completion.ttft * 1e3, answer.completion.tokens[0]


@click.command()
@click.option("--model", default="embedded", show_default=True)
@click.option("--dtype", default="auto", show_default=True)
@click.option("--methods", default="ar,auto,hf", show_default=True, help="As for bench.")
@click.option("--lengths", default="512,4096", show_default=True, help="Tokens of a prompt.")
@click.option("--prompts", default=5, show_default=True, help="Prompts of each length.")
@click.option("--threads", default=2, show_default=True)
def main(model: str, dtype: str, methods: str, lengths: str, prompts: int, threads: int) -> None:
    """Measure and print."""
    torch.set_num_threads(threads)
    choices = choose(methods.split(","))
    stage = Stage(partial(load, model, dtype=dtype))
    choices = [each.equipped(stage) if isinstance(each, OwnChoice) else each for each in choices]
    # Once: llama.cpp's opens its file, again where a request is longer than all before it.
    contenders = {choice.name: choice.enter(stage) for choice in choices}
    ids = stage.loaded.tokenizer.encode(TEXT.read_text(encoding="utf-8"))
    asked = {int(length): prompts_of(ids, int(length), prompts) for length in lengths.split(",")}
    found: dict[str, dict[int, float]] = {choice.name: {} for choice in choices}
    same: dict[str, int] = {choice.name: 0 for choice in choices}
    with watched() as neighbours:
        for length, parts in asked.items():
            times: dict[str, list[float]] = {choice.name: [] for choice in choices}
            for turn, prompt in enumerate([parts[0], *parts]):
                tokens = {}
                for name, contender in contenders.items():
                    milliseconds, tokens[name] = first_token(contender, prompt)
                    if turn:  # the first one warms up
                        times[name].append(milliseconds)
                for name, token in tokens.items() if turn else ():
                    same[name] += token == tokens[choices[0].name]
            for name, each in times.items():
                found[name][length] = statistics.median(each)
    settings = {"threads": threads, "prompts": prompts, "files_opened": "before"}
    facts = provenance(model=stage.facts(), settings=settings, sets=[])
    facts["other_processes"] = recorded(neighbours.others, neighbours.others)
    click.echo(
        json.dumps(
            {
                "provenance": facts,
                "first_token": {
                    name: {"milliseconds": found[name], "same": same[name]} for name in found
                },
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
