"""Cost of one level of a draft-model tree outside the model's forward, by policy.

Rows of q are Zipf-like over a large vocabulary, shuffled. Measured are the hand-over (the top-k of
every row of the frontier with its probabilities) and the policy's own work. Prints one JSON object.

    python runs/level_cost.py --vocabulary 150000 --threads 2
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import count

import click
import numpy as np
import torch

from draftwood.bench.provenance import provenance
from draftwood.methods import method
from draftwood.protocols import Candidates, Expand, Growth
from draftwood.target.harvest import hand_over

METHODS = ("eagle3", "talon", "dynatree", "opt-tree", "fixed-tree")


def zipf_logits(rows: int, vocabulary: int, exponent: float, seed: int) -> torch.Tensor:
    """Logits ``[rows, vocabulary]`` of power laws, each in an order of its own."""
    rng = np.random.default_rng(seed)
    logits = -exponent * np.log(np.arange(1, vocabulary + 1))
    return torch.tensor(
        np.stack([rng.permutation(logits) for _ in range(rows)]), dtype=torch.float32
    )


def milliseconds(work: Callable[[], object], repeats: int = 50) -> float:
    """Median wall-clock of ``work``."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


class Canned:
    """Answers a policy's queries from drawn rows and takes the time of the policy's own work."""

    def __init__(self, logits: Sequence[torch.Tensor], k: int) -> None:
        found = [hand_over(rows[None], k) for rows in logits]
        self._answers = [(tokens[0], np.log(probs[0])) for _, tokens, probs in found]
        self.levels: list[float] = []

    def grow(self, name: str) -> None:
        """One tree."""
        policy = method(name).policy
        growing = policy.grow(Growth(0, 64, policy.budget), policy.start())
        answer: Candidates | None = None
        for level in count():
            start = time.perf_counter()
            try:
                query = growing.send(answer)
            except StopIteration:
                self.levels.append(time.perf_counter() - start)
                return
            if level:
                self.levels.append(time.perf_counter() - start)
            assert isinstance(query, Expand)
            tokens, logq = self._answers[level % len(self._answers)]
            rows = np.arange(len(query.nodes)) % len(tokens)
            answer = Candidates(tokens[rows, : query.k], logq[rows, : query.k])


@click.command()
@click.option("--vocabulary", default=150_000, show_default=True)
@click.option("--rows", default=10, show_default=True, help="Nodes of the frontier.")
@click.option("--exponent", default=1.2, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(vocabulary: int, rows: int, exponent: float, threads: int) -> None:
    """Measure and print."""
    torch.set_num_threads(threads)
    logits = [zipf_logits(rows, vocabulary, exponent, seed) for seed in range(8)]
    turn = count()
    hand = {
        k: milliseconds(lambda k=k: hand_over(logits[next(turn) % 8][None], k))  # type: ignore[misc]
        for k in (10, 59)
    }
    policies = {}
    for name in METHODS:
        canned = Canned(logits, 59)
        for _ in range(40):
            canned.grow(name)
        policies[name] = statistics.median(canned.levels) * 1e3
    settings = {"vocabulary": vocabulary, "rows": rows, "exponent": exponent, "threads": threads}
    facts = {"hand_over_ms_by_k": hand, "policy_ms_per_level": policies}
    origin = provenance(model={}, settings=settings, sets=[])
    click.echo(json.dumps({"provenance": origin, **facts}, indent=1))


if __name__ == "__main__":
    main()
