"""What the memory of earlier requests adds, to second answers and to unrelated prompts.

    python runs/smollm2/memory.py --prompts SETS --unrelated SETS --limit 4 --temperature 1

Prompts are answered one by one by two engines that live through all of it, ``auto`` with the memory
and without it. The passes: ``first``; ``second``, the same prompts with other seeds, as in the next
epoch of a rollout; and ``unrelated``, other prompts. Both engines must generate the same tokens.

Prints one JSON object: tokens per forward and per second of each pass, and the share of 8-grams
that repeat within the answers. Tokens per second need a quiet machine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import click
import torch

from draftwood import Engine, Request, SamplingParams, load, method
from draftwood.costs.busy import watched
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Completion
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.prompts import Prompt, read, sources
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.lab.loops import Repeats, pooled, repeats
from draftwood.runner.attach import attach


@dataclass
class Total:
    """Sums over the answers of a pass by one engine."""

    tokens: int = 0
    forwards: int = 0
    seconds: float = 0.0
    copied: int = 0
    repeated: list[Repeats] = field(default_factory=list)

    def add(self, done: Completion) -> None:
        """Count an answer."""
        self.tokens += done.tally.committed
        self.forwards += done.tally.steps
        self.seconds += done.seconds - done.ttft
        self.copied += done.tally.accepted_by_source["memory"]
        self.repeated.append(repeats(done.tokens))

    def figures(self) -> dict[str, float]:
        """Of the pass."""
        return {
            "tokens_per_forward": self.tokens / self.forwards,
            "tokens_per_second": self.tokens / self.seconds,
            "accepted_from_memory": self.copied / self.tokens,
            "repeated_8grams": pooled(self.repeated).share or 0.0,
        }


@click.command()
@click.option("--model", default="smollm2", show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--base", default="auto:shipped=table:neural=", show_default=True)
@click.option("--prompts", required=True, help="Sets that are answered twice.")
@click.option("--unrelated", required=True, help="Sets that are answered afterwards.")
@click.option("--limit", default=4, show_default=True, help="Prompts of each set.")
@click.option("--max-new-tokens", default=128, show_default=True)
@click.option("--temperature", default=1.0, show_default=True)
@click.option("--top-p", default=1.0, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(**given: Any) -> None:
    """Measure and print."""
    torch.set_num_threads(given["threads"])
    known = sources(given["prompts"]), sources(given["unrelated"])
    members, others = (read(each, given["limit"]) for each in known)
    loaded = load(given["model"], dtype=given["dtype"])
    target = attach(loaded.model)
    host, limit = ModelHost(target, loaded.tokenizer), target.info.context_limit
    contexts = Contexts(loaded.tokenizer, limit, given["max_new_tokens"], truncate=2048)
    names = {"without": given["base"], "with": f"{given['base']}:also=memory"}
    engines = {arm: Engine(target, method(name), host=host) for arm, name in names.items()}

    def answers(prompt: Prompt, seed: int) -> dict[str, Completion]:
        sampling = SamplingParams(given["temperature"], top_p=given["top_p"], seed=seed)
        ids = contexts.after(prompt, ()).ids
        request = Request(ids, given["max_new_tokens"], sampling, eos=loaded.eos)
        found = {arm: engine.generate([request])[0].checked() for arm, engine in engines.items()}
        if found["with"].tokens != found["without"].tokens:
            raise DraftwoodError(f"the memory changed the answer to {prompt.id}")
        return found

    passes = {"first": (members, 0), "second": (members, 10_000), "unrelated": (others, 20_000)}
    found: dict[str, dict[str, dict[str, float]]] = {}
    with watched() as neighbours:
        for name, (asked, seed) in passes.items():
            totals = {arm: Total() for arm in engines}
            for number, prompt in enumerate(asked):
                for arm, done in answers(prompt, seed + number).items():
                    totals[arm].add(done)
            found[name] = {arm: total.figures() for arm, total in totals.items()}
    facts = provenance(
        model={"name": given["model"], "dtype": given["dtype"]},
        settings=given,
        sets=[*known[0], *known[1]],
    )
    facts["other_processes"] = recorded(neighbours.others, neighbours.others)
    click.echo(json.dumps({"provenance": facts, "memory_passes": found}, indent=1))


if __name__ == "__main__":
    main()
