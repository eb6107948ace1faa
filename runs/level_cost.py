"""Cost of one level of a draft-model tree outside the model's forward, by policy and threads.

Rows of q are shuffled power laws over a large vocabulary. Whole trees are grown; policies take
turns. Each query is answered by the hand-over and the ranking of one row a node; the rows were last
read seven levels earlier. Prints one JSON object: by number of threads, exponent and method,

* ``full_level``: milliseconds of the median level of ``--rows`` nodes: the hand-over, the ranking,
  the policy, and all three;
* ``tree``: milliseconds of the median tree; its mean ``nodes`` and ``levels``;
* ``level``: ``tree`` over ``levels``.

    python runs/level_cost.py --vocabulary 150000
"""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle

import click
import numpy as np
import torch

from draftwood.costs.busy import watched
from draftwood.drafters._rollout.topk import rank
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.methods import method
from draftwood.protocols import Candidates, Expand, Growth, TargetInfo, TargetOutput
from draftwood.runner.to_host import to_host

METHODS = ("eagle3", "talon", "dynatree", "opt-tree", "fixed-tree")
PARTS = ("hand_over", "ranking", "policy")


def zipf_logits(rows: int, vocabulary: int, exponent: float, seed: int) -> torch.Tensor:
    """Logits ``[rows, vocabulary]`` of power laws, each row shuffled by itself."""
    rng = np.random.default_rng(seed)
    logits = -exponent * np.log(np.arange(1, vocabulary + 1))
    return torch.tensor(
        np.stack([rng.permutation(logits) for _ in range(rows)]), dtype=torch.float32
    )


@dataclass
class Costs:
    """Nodes of each tree of a policy; nodes and seconds by part of each of its levels."""

    nodes: list[int] = field(default_factory=list)
    levels: list[list[tuple[int, tuple[float, ...]]]] = field(default_factory=list)

    def facts(self, rows: int) -> dict[str, object]:
        """Medians and means that are printed (see the module)."""
        found = [seconds for tree in self.levels for m, seconds in tree if m == rows]
        parts = dict(zip(PARTS, zip(*found, strict=True), strict=False))
        if found:
            parts["all"] = tuple(map(sum, found))
        tree = statistics.median(sum(sum(s) for _, s in tree) for tree in self.levels) * 1e3
        levels = statistics.mean(map(len, self.levels))
        return {
            "full_level": {part: statistics.median(times) * 1e3 for part, times in parts.items()},
            "level": tree / levels,
            "tree": tree,
            "nodes": statistics.mean(self.nodes),
            "levels": levels,
        }


class PreparedModel:
    """Stand-in for a draft model: answers every query with prepared logits."""

    def __init__(self, logits: Sequence[torch.Tensor]) -> None:
        vocabulary = logits[0].shape[1]
        cpu = torch.device("cpu")
        info = TargetInfo(vocabulary, 4096, 1, 1, cpu, torch.float32)
        self._outputs = VocabularyMap(np.arange(vocabulary), info)
        self._logits = cycle(logits)

    def grow(self, name: str, costs: Costs) -> None:
        """Grow one tree and record its costs."""
        policy = method(name).policy
        growing = policy.grow(Growth(0, 64, policy.budget), policy.start())
        query = next(growing)
        costs.levels.append([])
        while True:
            assert isinstance(query, Expand)
            m = len(query.nodes)
            logits = next(self._logits)[:m]
            start = time.perf_counter()
            argmax, tokens, probs = to_host(logits[None], query.k)
            handed = time.perf_counter()
            rows = TargetOutput(logits, argmax[0], tokens[0], probs[0])
            answer: Candidates = rank(query, [(rows, i) for i in range(m)], self._outputs)
            ranked = time.perf_counter()
            try:
                query, tree = growing.send(answer), None
            except StopIteration as finished:
                tree = finished.value
            end = time.perf_counter()
            costs.levels[-1].append((m, (handed - start, ranked - handed, end - ranked)))
            if tree is not None:
                costs.nodes.append(tree.drafted)
                return


@click.command()
@click.option("--vocabulary", default=150_000, show_default=True)
@click.option("--rows", default=10, show_default=True, help="Nodes of a full level.")
@click.option("--widest", default=60, show_default=True, help="Most nodes of any level.")
@click.option("--exponents", default=(0.7, 1.2, 1.35, 5.0), show_default=True, multiple=True)
@click.option("--threads", default=(1, 2), show_default=True, multiple=True)
@click.option("--trees", default=30, show_default=True, help="Trees of each method.")
@click.option("--dtype", default="float32", show_default=True)
def main(
    vocabulary: int,
    rows: int,
    widest: int,
    exponents: Sequence[float],
    threads: Sequence[int],
    trees: int,
    dtype: str,
) -> None:
    """Measure and print."""
    facts: dict[str, dict[str, object]] = {str(count): {} for count in threads}
    with watched() as neighbours:
        for exponent in exponents:
            logits = [
                zipf_logits(widest, vocabulary, exponent, seed).to(getattr(torch, dtype))
                for seed in range(8)
            ]
            for count in threads:
                torch.set_num_threads(count)
                model, costs = PreparedModel(logits), {name: Costs() for name in METHODS}
                for name in METHODS:  # not counted
                    model.grow(name, Costs())
                for _ in range(trees):
                    for name in METHODS:
                        model.grow(name, costs[name])
                facts[str(count)][str(exponent)] = {n: c.facts(rows) for n, c in costs.items()}
    settings = {
        "vocabulary": vocabulary,
        "rows": rows,
        "exponents": list(exponents),
        "threads": list(threads),
        "trees": trees,
        "dtype": dtype,
    }
    origin = provenance(model={}, settings=settings, sets=[])
    origin["other_processes"] = recorded(neighbours.others, neighbours.others)
    click.echo(json.dumps({"provenance": origin, "milliseconds_by_threads": facts}, indent=1))


if __name__ == "__main__":
    main()
