"""What the memory of earlier requests adds in the recipes of docs/memory.md, and to other prompts.

    PROMPTS=prompts python runs/smollm2/memory.py agent epochs repository --limit 4

Prompts are answered one by one by two engines that live through all passes of a recipe, ``auto``
with the memory and without it, in turns. Both must generate the same tokens. The recipes:

* ``agent``: files of ``--folder``, with another order in each pass (``turn1`` to ``turn4``);
* ``epochs``: prompts of ``--prompts``, with other seeds in each pass (``epoch1``, ...);
* ``repository``: the first half of files of ``--folder``, to be continued (``beginnings``); all
  other files of the folder are remembered from the start (``memory.text``).

The last pass of each, ``unrelated``, has the prompts of ``--unrelated``. A set is a file, or the
name of one in the directory PROMPTS. Without a temperature, epochs are sampled at 1 and the others
are greedy.

Prints one JSON object. Of each pass: tokens per forward and per second, the share of tokens that
the memory was the first to offer, and the shares of 8-grams that repeat within an answer and that
are known: an earlier request or a remembered file holds them, and this request does not yet. Then
with over without the memory, with 95 % intervals over prompts, and tokens per forward over those of
the first pass. Tokens per second need a quiet machine, and ``auto`` sizes its trees by the times
that it measures; remembering an answer counts as part of its time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from draftwood import Engine, Request, SamplingParams, load, method
from draftwood.costs.busy import watched
from draftwood.drafters._texts import encoded_files
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.intervals import ratio_intervals
from draftwood.lab.bench.prompts import Prompt, read, sources
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.lab.bench.sources import Source
from draftwood.lab.loops import Repeats, grams, pooled, repeats
from draftwood.models import Loaded
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner

ARMS = ("without", "with")
ORDERS = (
    "Add type hints to all parameters and results.",
    "Add a docstring to every function that has none.",
    "Rename the variables whose names say nothing.",
    "Raise ValueError where an argument makes no sense.",
)
"""What an agent asks for, turn by turn."""

LEAST, MOST = 500, 4000
"""Fewest and most characters of a file that is sent or continued."""


@dataclass(frozen=True)
class Recipe:
    """A way to use the memory.

    Attributes:
        passes: the prompts of each, by its name.
        temperature: unless another is asked for.
        remembered: files that are remembered from the start.
    """

    passes: Mapping[str, Sequence[Prompt]]
    temperature: float = 0.0
    remembered: tuple[str, ...] = ()


def agent(files: Sequence[Path]) -> Recipe:
    """The same files with another order in each turn."""
    return Recipe(
        {
            f"turn{turn}": [
                Prompt(f"{path}, turn {turn}", "agent", "agent", (asking(path, order),))
                for path in files
            ]
            for turn, order in enumerate(ORDERS, start=1)
        }
    )


def asking(path: Path, order: str) -> str:
    """A file's text and an order."""
    code = path.read_text(encoding="utf-8")
    return f"```python\n{code}\n```\n\n{order} Reply with the whole file."


def epochs(prompts: Sequence[Prompt], count: int) -> Recipe:
    """The same prompts, which are sampled with other seeds in each epoch."""
    return Recipe({f"epoch{i + 1}": prompts for i in range(count)}, temperature=1.0)


def repository(files: Sequence[Path], others: Sequence[Path]) -> Recipe:
    """Files to be continued from their first half, where the others are remembered."""
    if not others:
        raise DraftwoodError("all files would be continued: lower --limit, or name another folder")
    prompts = []
    for path in files:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        half = "".join(lines[: len(lines) // 2])
        prompts.append(Prompt(str(path), "repository", "repository", (half,), completion=True))
    return Recipe({"beginnings": prompts}, remembered=tuple(map(str, others)))


def code_of(folder: Path, limit: int) -> tuple[list[Path], list[Path]]:
    """Python files to send, evenly spaced among those of a fitting length, and all others."""
    known = sorted(folder.rglob("*.py"))
    fitting = [path for path in known if LEAST <= len(path.read_text(encoding="utf-8")) <= MOST]
    if not fitting:
        raise DraftwoodError(f"{folder} has no Python file of {LEAST} to {MOST} characters")
    count = min(limit, len(fitting))
    chosen = [fitting[i * len(fitting) // count] for i in range(count)]
    return chosen, [path for path in known if path not in chosen]


def sets(names: str, directory: str) -> tuple[Source, ...]:
    """The sources of a comma-separated list, in which a bare name is a file of the directory."""
    return sources(
        ",".join(
            str(Path(directory) / f"{name}.jsonl") if name.isidentifier() else name
            for name in names.split(",")
        )
    )


@dataclass
class Total:
    """An engine's answers to the prompts of a pass; one entry each."""

    tokens: list[int] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    copied: int = 0

    def figures(self) -> dict[str, float]:
        """Of the pass."""
        return {
            "tokens_per_forward": sum(self.tokens) / sum(self.forwards),
            "tokens_per_second": sum(self.tokens) / sum(self.seconds),
            "accepted_from_memory": self.copied / sum(self.tokens),
        }


class Measurement:
    """Answers a recipe's prompts with and without the memory.

    Args:
        recipe: what is asked, and what is remembered from the start.
        loaded: the model.
        target: the same, attached.
        given: options of the command.
    """

    def __init__(
        self, recipe: Recipe, loaded: Loaded, target: Runner, given: Mapping[str, Any]
    ) -> None:
        self._recipe, self._given, self._eos = recipe, given, loaded.eos
        asked = given["temperature"]
        self._temperature = recipe.temperature if asked is None else asked
        limit, new = target.info.context_limit, given["max_new_tokens"]
        self._contexts = Contexts(loaded.tokenizer, limit, new, truncate=given["truncate"])
        host, base = ModelHost(target, loaded.tokenizer), given["base"]
        with_memory = method(f"{base}:also=memory", memory__text=recipe.remembered)
        methods = {"without": method(base), "with": with_memory}
        self._engines = {arm: Engine(target, methods[arm], host=host) for arm in ARMS}
        self._known = {
            gram for text in encoded_files(recipe.remembered, host.encode) for gram in grams(text)
        }

    def run(self, unrelated: Sequence[Prompt]) -> dict[str, object]:
        """The figures of each pass, of unrelated prompts last."""
        found: dict[str, object] = {}
        first: dict[str, float] = {}
        for number, (name, prompts) in enumerate(
            [*self._recipe.passes.items(), ("unrelated", unrelated)]
        ):
            totals = {arm: Total() for arm in ARMS}
            looped, known = [], []
            for i, prompt in enumerate(prompts):
                within, before = self._answer(prompt, 10_000 * number + i, totals, begins=i % 2)
                looped.append(within)
                known.append(before)
            figures = {arm: total.figures() for arm, total in totals.items()}
            tau = {arm: each["tokens_per_forward"] for arm, each in figures.items()}
            first = first or tau
            found[name] = {
                "prompts": len(prompts),
                "repeated_8grams": pooled(looped).share,
                "known_8grams": pooled(known).share,
                **figures,
                "with_over_without": ratios(totals["with"], totals["without"]),
                "over_first_pass": {arm: tau[arm] / first[arm] for arm in ARMS},
            }
        return {"temperature": self._temperature, "passes": found}

    def _answer(
        self, prompt: Prompt, seed: int, totals: Mapping[str, Total], *, begins: int
    ) -> tuple[Repeats, Repeats]:
        """Repetition within an answer, and of what is known; the arm ``begins`` answers first.

        Raises:
            DraftwoodError: the engines' answers differ, or a request failed.
        """
        sampling = SamplingParams(self._temperature, top_p=self._given["top_p"], seed=seed)
        ids = self._contexts.after(prompt, ()).ids
        request = Request(ids, self._given["max_new_tokens"], sampling, eos=self._eos)
        answers = set()
        for arm in (ARMS[begins], ARMS[1 - begins]):
            start = time.perf_counter()
            done = self._engines[arm].generate([request])[0].checked()
            total = totals[arm]
            total.seconds.append(time.perf_counter() - start - done.ttft)
            total.tokens.append(done.tally.committed)
            total.forwards.append(done.tally.steps)
            total.copied += done.tally.accepted_by_source["memory"]
            answers.add(done.tokens)
        if len(answers) > 1:
            raise DraftwoodError(f"the memory changed the answer to {prompt.id}")
        (answer,) = answers
        before = self._known_before(ids, answer)
        self._known.update(grams([*ids, *answer]))
        return repeats(answer), before

    def _known_before(self, prompt: Sequence[int], answer: Sequence[int]) -> Repeats:
        """Counts the answer's 8-grams that are known, and new to the request itself."""
        own, there = grams(answer), set(grams(prompt))
        count = 0
        for gram in own:
            count += gram in self._known and gram not in there
            there.add(gram)
        return Repeats(count, len(own))


def ratios(of: Total, over: Total) -> dict[str, dict[str, float | None]]:
    """Speeds of equal answers over one another, with intervals over prompts."""
    mine, theirs = (np.array([each.forwards, each.seconds], dtype=float).T for each in (of, over))
    found = ratio_intervals(theirs, mine)
    names = ("tokens_per_forward", "tokens_per_second")
    return {name: vars(ratio) for name, ratio in zip(names, found, strict=True)}


RECIPES = ("agent", "epochs", "repository")


@click.command()
@click.argument("recipes", nargs=-1, type=click.Choice(RECIPES))
@click.option("--model", default="smollm2", show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--base", default="auto:shipped=table:neural=", show_default=True)
@click.option("--directory", envvar="PROMPTS", default=".", help="Of sets.  [default: PROMPTS]")
@click.option("--prompts", default="humaneval,mt_bench,gsm8k_test", show_default=True)
@click.option("--unrelated", default="mbpp,pg_prompts", show_default=True)
@click.option("--folder", default="draftwood", show_default=True, help="Of Python files.")
@click.option("--epochs", "count", default=3, show_default=True)
@click.option("--limit", default=4, show_default=True, help="Prompts of each set, and files.")
@click.option("--max-new-tokens", default=128, show_default=True)
@click.option("--truncate", default=1536, show_default=True, help="Last tokens of long prompts.")
@click.option("--temperature", type=float)
@click.option("--top-p", default=1.0, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(recipes: tuple[str, ...], **given: Any) -> None:
    """Measure and print."""
    torch.set_num_threads(given["threads"])
    recipes = recipes or RECIPES
    others = sets(given["unrelated"], given["directory"])
    asked = sets(given["prompts"], given["directory"]) if "epochs" in recipes else ()
    limit = given["limit"]
    files = (
        code_of(Path(given["folder"]), limit) if {"agent", "repository"} & {*recipes} else ([], [])
    )
    made = {
        "agent": lambda: agent(files[0]),
        "epochs": lambda: epochs(read(asked, limit), given["count"]),
        "repository": lambda: repository(*files),
    }
    unrelated = read(others, limit)
    loaded = load(given["model"], dtype=given["dtype"])
    target = attach(loaded.model)
    with watched() as neighbours:
        found = {
            name: Measurement(made[name](), loaded, target, given).run(unrelated)
            for name in recipes
        }
    facts = provenance(
        model={"name": given["model"], "dtype": given["dtype"]},
        settings={"recipes": recipes, **given},
        sets=[*asked, *others],
    )
    facts["other_processes"] = recorded(neighbours.others, neighbours.others)
    click.echo(json.dumps({"provenance": facts, "memory_recipes": found}, indent=1))


if __name__ == "__main__":
    main()
