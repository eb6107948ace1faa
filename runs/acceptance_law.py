"""Exact expected acceptance of drafted trees, by verifier, along real generations.

Counting accepted tokens is noisy: steps vary far more than verifiers differ. Here each verifier's
expectation is computed for every tree that a method drafts: the mean number of accepted nodes over
the verifier's random decisions. Verifiers of the same trees are thereby
compared tree by tree. Prints one JSON object, in which each seed has
the figures of all prompts and those of each task.

    python runs/acceptance_law.py --prompts FILE.jsonl --limit 6 --methods traversal,mixed
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import click
import numpy as np
import torch

from draftwood import attach, load
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Request
from draftwood.lab.bench.contenders import OwnChoice, choose
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.defaults import Defaults
from draftwood.lab.bench.prompts import read
from draftwood.lab.bench.provenance import provenance
from draftwood.protocols import Verdict, Verification, Verifier
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import ROOT, Draw
from draftwood.verifiers._residuals import judged_trees
from draftwood.verifiers.traversal import keep_probabilities


def accepted_by_walk(case: Verification) -> float:
    """Expected nodes accepted of a deterministic tree: the sum of its paths' probabilities."""
    tree = case.tree
    reach = np.zeros(len(tree))
    reach[ROOT] = 1
    inner = sorted(set(tree.parents.tolist()) - {-1})
    if not inner:
        return 0.0
    p = dict(zip(inner, case.p.probabilities(inner), strict=True))
    for node in range(1, len(tree)):
        parent = int(tree.parents[node])
        reach[node] = reach[parent] * float(p[parent][int(tree.tokens[node])])
    return float(reach[1:].sum())


def accepted_by_rejection(case: Verification) -> float:
    """Expected nodes accepted token by token, siblings tested one after another."""
    [tree] = judged_trees([case], carried=False)
    expected = [0.0] * len(case.tree)
    for node, children in reversed([*enumerate(tree.children)]):
        left = 1.0
        tested = tree.at(node, 1.0) if children else None
        probabilities = () if tested is None else tested.probabilities
        for child, probability in zip(children, probabilities, strict=tested is not None):
            expected[node] += left * probability * (1 + expected[child])
            left *= 1 - probability
    return expected[ROOT]


def accepted_by_traversal(case: Verification) -> float:
    """Expected nodes accepted by Traversal Verification."""
    expected, left = 0.0, 1.0
    [tree] = judged_trees([case], carried=True)
    for node, probability in keep_probabilities(tree):
        expected += left * probability * int(case.tree.depths[node])
        left *= 1 - probability
    return expected


@dataclass(frozen=True, eq=False)
class RecordingVerifier:
    """A verifier that records the expected acceptance of every tree, by several verifiers."""

    inner: Verifier
    seen: list[dict[str, float]] = field(default_factory=list)
    accepts: ClassVar = frozenset(Draw)
    branching: ClassVar = True

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Verify with the inner verifier."""
        for case in cases:
            if not case.tree.drafted:
                continue
            if (case.tree.draws == Draw.ONE_HOT).all():
                self.seen.append({"walk": accepted_by_walk(case)})
            else:
                both = accepted_by_rejection(case), accepted_by_traversal(case)
                self.seen.append(dict(zip(("rejection", "traversal"), both, strict=True)))
        return self.inner.verify(cases)


def summary(seen: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean tokens a step (the bonus included) by verifier, and the paired relative gain."""
    names = seen[0].keys() if seen else ()
    found = {name: 1 + float(np.mean([each[name] for each in seen])) for name in names}
    if len(found) == 2:
        found["gain"] = found["traversal"] / found["rejection"] - 1
    return found | {"steps": len(seen)}


def by_task(
    seen: Sequence[dict[str, float]], ends: Sequence[int], tasks: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Summary of each task; the steps of prompt i end at ``ends[i]``."""
    found: dict[str, list[dict[str, float]]] = {}
    for start, end, task in zip((0, *ends), ends, tasks, strict=False):
        found.setdefault(task, []).extend(seen[start:end])
    return {task: summary(steps) for task, steps in found.items()}


@click.command()
@click.option("--prompts", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--limit", default=6, show_default=True)
@click.option("--truncate", default=1024, show_default=True)
@click.option("--max-new-tokens", default=96, show_default=True)
@click.option("--methods", required=True, help="Separated by commas.")
@click.option("--temperatures", default="0.2,0.4,0.6,0.8,1.0", show_default=True)
@click.option("--seeds", default="1,2,3", show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--model", default="embedded", show_default=True)
@click.option("--draft", help="Its draft model.")
@click.option("--head", help="Its EAGLE-3 head.")
@click.option("--chat", is_flag=True, help="All prompts in the chat template.")
def main(
    prompts: Path,
    limit: int,
    truncate: int,
    max_new_tokens: int,
    methods: str,
    temperatures: str,
    seeds: str,
    threads: int,
    model: str,
    draft: str | None,
    head: str | None,
    chat: bool,
) -> None:
    """Measure and print."""
    torch.set_num_threads(threads)
    choices = choose(methods.split(","), Defaults(draft=draft, head=head))
    loaded = load(model)
    target = attach(loaded.model)
    host = ModelHost(target, loaded.tokenizer)
    chosen = read([prompts], limit)
    contexts = Contexts(
        loaded.tokenizer,
        target.info.context_limit,
        max_new_tokens,
        chat=chat or None,
        truncate=truncate,
    )
    ids = [contexts.after(prompt, ()).ids for prompt in chosen]
    found: dict[str, dict[str, list[dict[str, object]]]] = {}
    for choice in choices:
        if not isinstance(choice, OwnChoice) or not choice.method.drafters:
            continue
        name, plain = choice.name, choice.method
        for heat in temperatures.split(","):
            for seed in seeds.split(","):
                watched = RecordingVerifier(plain.verifier)
                engine = Engine(target, dataclasses.replace(plain, verifier=watched), host=host)
                ends = []
                for i, prompt in enumerate(ids):
                    sampling = SamplingParams(temperature=float(heat), seed=1000 * int(seed) + i)
                    engine.generate([Request(prompt, max_new_tokens, sampling, eos=loaded.eos)])
                    ends.append(len(watched.seen))
                tasks = by_task(watched.seen, ends, [prompt.task for prompt in chosen])
                of_seed = {**summary(watched.seen), "by_task": tasks}
                found.setdefault(name, {}).setdefault(heat, []).append(of_seed)
                click.echo(f"{name} T={heat} seed {seed}: {summary(watched.seen)}", err=True)
    facts = provenance(
        model={"name": model, "dtype": str(target.info.dtype)},
        settings={
            "limit": limit,
            "truncate": truncate,
            "max_new_tokens": max_new_tokens,
            "seeds": seeds,
        },
        sets=[prompts],
    )
    click.echo(json.dumps({"provenance": facts, "methods": found}, indent=1))


if __name__ == "__main__":
    main()
