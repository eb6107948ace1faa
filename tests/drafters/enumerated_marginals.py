"""The exact output law of a step drafted from a drafter's own marginals, over three tokens."""

from dataclasses import dataclass, field

import numpy as np
import torch

from draftwood.lab.lossless.enumeration import Size, StepEnumeration, StepStart
from draftwood.lab.lossless.tiny import VOCAB, Prefix, Row, Scene
from draftwood.methods import method
from draftwood.protocols import Drafter, Expand
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw, TreeBuilder

DEPTHS = 3


@dataclass(frozen=True)
class MarginalScene(Scene):
    """A scene whose drafters all have these distributions, by depth."""

    rows: tuple[tuple[float, ...], ...] = field(default=(), kw_only=True)

    def q(self, source: str, prefix: Prefix, temperature: float) -> Row:
        row: Row = np.array(self.rows[len(prefix) - 1]) ** (1 / temperature)
        total: float = row.sum()
        return row / total


def marginals_of(drafter: Drafter, slot: int, root: int) -> tuple[tuple[float, ...], ...]:
    """q of the first :data:`DEPTHS` depths, ``[DEPTHS, VOCAB]``."""
    tree = TreeBuilder(root)
    tree.add_chain([0] * (DEPTHS - 1), "context")
    noise = RequestNoise(0)
    query = Expand("draft", tree, range(DEPTHS), 1, Draw.WITHOUT_REPLACEMENT, noise=noise)
    [answer] = drafter.expand([slot], [query])
    assert answer.q_rows is not None
    rows = drafter.proposals(slot, answer.q_rows.tolist()).double()
    assert rows.shape == (DEPTHS, VOCAB)
    assert torch.unique(rows, dim=0).shape == rows.shape, "depths differ"
    return tuple(tuple(row) for row in (rows / rows.sum(1, keepdim=True)).tolist())


def largest_difference(name: str, rows: tuple[tuple[float, ...], ...]) -> float:
    """Largest difference of a method's output law from the target's, over a few targets."""
    chosen = method(name)
    found = []
    for seed, temperature in ((0, 1.0), (1, 0.6), (2, 1.5), (3, 0.0)):
        scene = MarginalScene(seed, temperature, rows=rows)
        start = StepStart((0,), chosen.policy.start())
        size = Size(4, DEPTHS - 1)
        step = StepEnumeration(chosen.policy, chosen.verifier, scene, size, start)
        law = step.law()
        assert law.trees > 1 or temperature == 0 or not chosen.policy.draws - {Draw.ONE_HOT}
        found.append(law.difference)
    return max(found)
