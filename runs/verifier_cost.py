"""Cost of verifying sampled binary trees by verifier, nodes and vocabulary, and of a forward.

Rows of p are shuffled power laws over the vocabulary, and q is p with noise. The softmax over the
target's logits is included, because only the verifier knows which rows it needs. Prints one
JSON object.

    python runs/verifier_cost.py --threads 2
"""

import json
import statistics
import time
from collections.abc import Sequence

import click
import numpy as np
import torch

from draftwood import attach, load
from draftwood.costs.busy import watched
from draftwood.costs.measure import Grid, measure_target
from draftwood.drafters._rollout.gumbel import gumbel_top_k
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.methods.registry import load as part
from draftwood.protocols import TargetInfo, TargetOutput, Verification, Verifier
from draftwood.sampling.distributions import TreeDistributions
from draftwood.sampling.history import History
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.sampler import Sampler, SamplingParams
from draftwood.tree import Draw, TokenTree, TreeBuilder

VOCABULARIES = (4096, 32_000, 152_000)
DEPTHS = (4, 5)
VERIFIERS = ("rejection", "traversal")


class Rowwise:
    """Distributions that a tree's children were drawn from, one row a parent."""

    def __init__(self, q: torch.Tensor, tree: TokenTree) -> None:
        target = TargetInfo(q.shape[1], 1, 1, 1, q.device, q.dtype)
        self._outputs = VocabularyMap(np.arange(q.shape[1]), target)
        self._q = q
        self._tree = tree

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """q as float32 ``[n, V]``."""
        rows = self._tree.q_rows.tolist()
        return self._outputs.target_rows([self._q[rows[node]] for node in nodes])


def drawn_tree(q: torch.Tensor, depth: int, rng: np.random.Generator) -> TokenTree:
    """A binary tree, each node's children drawn without replacement from the row of its number."""
    builder = TreeBuilder(0)
    level = [0]
    for _ in range(depth):
        below = []
        for node in level:
            how = Draw.WITHOUT_REPLACEMENT
            (tokens,), (shares,) = gumbel_top_k(q[node : node + 1], 2, how, [rng])
            for token, logq in zip(tokens.tolist(), np.log(shares).tolist(), strict=True):
                below.append(builder.add(node, token, "draft", logq=logq, draw=how, q_row=node))
        level = below
    return builder.build()


def cases(
    vocabulary: int, depth: int, count: int
) -> list[tuple[TargetOutput, TokenTree, torch.Tensor]]:
    """Inputs of several verifications: target rows, tree, rows of q."""
    rng = np.random.default_rng(vocabulary + depth)
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    found = []
    for _ in range(count):
        law = -1.2 * np.log(np.arange(1, vocabulary + 1))
        logits = np.stack([rng.permutation(law) for _ in range(nodes)]).astype(np.float32)
        guess = logits[:inner] + rng.normal(scale=0.7, size=(inner, vocabulary)).astype(np.float32)
        q = torch.softmax(torch.from_numpy(guess), dim=-1)
        none = np.zeros((nodes, 0))
        rows = TargetOutput(
            torch.from_numpy(logits),
            logits.argmax(1),
            none.astype(np.int64),
            none.astype(np.float32),
        )
        found.append((rows, drawn_tree(q, depth, rng), q))
    return found


def verifying(
    verifier: Verifier, steps: Sequence[tuple[TargetOutput, TokenTree, torch.Tensor]]
) -> float:
    """Median milliseconds of one verification."""
    sampler = Sampler(SamplingParams(temperature=1.0), 1)
    times = []
    for turn in range(4 * len(steps)):
        rows, tree, q = steps[turn % len(steps)]
        p = TreeDistributions(rows, tree, sampler, History([0]))
        case = Verification(tree, p, Rowwise(q, tree), RequestNoise(0, turn))
        start = time.perf_counter()
        verifier.verify([case])
        times.append(time.perf_counter() - start)
    return statistics.median(times[len(steps) :]) * 1e3


@click.command()
@click.option("--threads", default=2, show_default=True)
@click.option("--steps", default=8, show_default=True, help="Different trees of each kind.")
def main(threads: int, steps: int) -> None:
    """Measure and print."""
    torch.set_num_threads(threads)
    loaded = load("embedded")
    target = attach(loaded.model)
    nodes = {depth: 2 ** (depth + 1) - 1 for depth in DEPTHS}
    found = {}
    with watched() as neighbours:
        forwards = measure_target(target, Grid(tuple(nodes.values()), contexts=(512,)))
        for depth, forward in zip(DEPTHS, forwards, strict=True):
            row: dict[str, object] = {"target_forward_ms": forward.seconds * 1e3}
            for vocabulary in VOCABULARIES:
                made = cases(vocabulary, depth, steps)
                row[str(vocabulary)] = {
                    name: verifying(part("verifiers", name)(), made) for name in VERIFIERS
                }
            found[str(nodes[depth])] = row
    facts = provenance(
        model={"name": "embedded", "dtype": str(target.info.dtype)},
        settings={"threads": threads, "steps": steps},
        sets=[],
    )
    facts["other_processes"] = recorded(neighbours.others, neighbours.others)
    click.echo(json.dumps({"provenance": facts, "verifying_ms": found}, indent=1))


if __name__ == "__main__":
    main()
