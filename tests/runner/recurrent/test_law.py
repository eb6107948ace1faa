"""Sampled trees keep the law of a model with recurrent layers: enumerated, and by counts."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.lab.lossless.enumeration import Size, StepEnumeration, StepStart
from draftwood.lab.lossless.model import ModelCheck
from draftwood.lab.lossless.tiny import VOCAB, Prefix, Row, Scene, completed, joint
from draftwood.methods import method
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.recurrent import forwards
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import TreeBuilder
from tests.factories.hybrid_families import CONFIGS, HYBRIDS, hybrid, known
from tests.runner.recurrent.test_hybrids import changed, in_order

ROOT, DEEPEST = 2, 2
TEXT = [1, 0, 2, 2, 1, 0, 0, 1, 2, 1, 0, 2]
"""Before the root."""


@dataclass(frozen=True)
class ModelScene(Scene):
    """Laws of two models, after the root and every path of tokens.

    Attributes:
        target: rows by the tokens from the root on.
        draft: likewise.
    """

    target: Mapping[Prefix, Row] = field(default_factory=dict)
    draft: Mapping[Prefix, Row] = field(default_factory=dict)

    def p(self, prefix: Prefix) -> Row:
        return self.target[prefix]

    def q(self, source: str, prefix: Prefix, temperature: float) -> Row:
        return self.draft[prefix]


def row(logits: torch.Tensor) -> Row:
    found: Row = torch.softmax(logits.double(), dim=-1).numpy()
    return found


def prefixes() -> list[Prefix]:
    """The root, and all paths of tokens below it."""
    paths = (itertools.product(range(VOCAB), repeat=n) for n in range(DEEPEST + 1))
    return [(ROOT, *path) for path in itertools.chain.from_iterable(paths)]


def in_one_forward(model: Any) -> dict[Prefix, Row]:
    """After every prefix, from one forward over the tree of all of them."""
    runner = attach(model, self_test=False)
    slot, builder = runner.open(64), TreeBuilder(ROOT)
    nodes: dict[Prefix, int] = {(ROOT,): 0}
    runner.prefill([slot], [TEXT], Needs())
    for prefix in prefixes()[1:]:
        nodes[prefix] = builder.add(nodes[prefix[:-1]], prefix[-1], "all")
    [rows] = runner.forward([slot], [builder.build()], Needs())
    runner.detach()
    return {prefix: row(rows.logits[node]) for prefix, node in nodes.items()}


@torch.no_grad()
def one_by_one(model: Any) -> dict[Prefix, Row]:
    """The same from transformers, a forward over the whole text for each."""
    return {
        prefix: row(model(torch.tensor([[*TEXT, *prefix]])).logits[0, -1]) for prefix in prefixes()
    }


def differs(name: str, target: Any, draft: Any) -> float:
    """Largest error of the joint law of the next tokens of one step, trees from :data:`ROOT`."""
    chosen = method(name)
    scene = ModelScene(0, target=in_one_forward(target), draft=one_by_one(draft))
    start = StepStart((ROOT,), chosen.policy.start())
    size = Size(budget=6, room=DEEPEST)
    law = StepEnumeration(chosen.policy, chosen.verifier, scene, size, start).law(100_000)
    assert law.trees > 1
    assert law.accepted > 0.1
    assert math.isclose(sum(end.probability for end in law.endings), 1.0, rel_tol=1e-9)
    expected = one_by_one(target)

    def after(prefix: Prefix) -> Row:
        return expected[(ROOT, *prefix)]

    found = [(ending.committed, ending.probability) for ending in law.endings]
    length = DEEPEST + 1
    wrong = completed(after, found, length) - joint(after, (), length)
    return float(np.abs(wrong).max())


def models(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A target of three tokens and a similar draft model."""
    monkeypatch.setitem(CONFIGS, name, CONFIGS[name] | {"vocab_size": VOCAB})
    return hybrid(name), changed(hybrid(name))


@pytest.mark.parametrize("name", known("qwen3_5_text", "granitemoehybrid", "lfm2"))
@pytest.mark.parametrize("drafts", ["traversal:shape=2x1", "specinfer:shape=2x1"])
def test_the_law_of_a_step_is_the_models_own(
    name: str, drafts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert differs(drafts, *models(name, monkeypatch)) < 1e-5


def test_states_of_the_wrong_node_change_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    target, draft = models("qwen3_5_text", monkeypatch)
    monkeypatch.setattr(forwards, "ancestry", in_order)
    assert differs("traversal:shape=2x1", target, draft) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", known("qwen3_5_text", "jamba"))
def test_counts_of_continuations_follow_the_law(name: str) -> None:
    runner = attach(HYBRIDS[name]())
    sampling = SamplingParams(temperature=1.0, top_k=3, seed=5)
    check = ModelCheck(runner, None, [5, 9, 13, 7, 22, 5, 9], sampling)
    chosen = method("traversal:shape=2x2", draft=changed(HYBRIDS[name]()))
    found = check.check_sampled("traversal", chosen, 2000)
    assert found.accepted > 200
    assert found.passed, str(found)
    runner.detach()
