"""Drafters that read different layers of the target, in one engine."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters._features import step_features
from draftwood.drafters.eagle3.drafter import Eagle3
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.drafters.medusa.drafter import Medusa
from draftwood.engine.engine import Engine
from draftwood.engine.features import FeatureShare, picked
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Request
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.protocols import (
    Expand,
    Grower,
    Growth,
    Needs,
    Outcome,
    Policy,
    Prefill,
    TargetOutput,
    setting,
)
from draftwood.runner.attach import attach
from draftwood.tree import ROOT, TreeBuilder, tree_of
from draftwood.verifiers.walk import Walk
from tests.factories.eagle3_heads import tiny_config
from tests.factories.medusa_heads import made_heads
from tests.factories.tiny_llama import VOCAB, tiny_llama

NOTHING: Any = np.empty(0)
LAYERS = 3


def rows(features: torch.Tensor | None) -> TargetOutput:
    return TargetOutput(torch.zeros(1, 1), NOTHING, NOTHING, NOTHING, features)


def outcome(features: torch.Tensor | None) -> Outcome:
    return Outcome(TreeBuilder(1).build(), (), (2,), rows(features))


@pytest.mark.parametrize("own", [(7,), (2, 4), (7, 2), (4, 7)])
def test_a_share_is_the_drafters_taps_in_its_order(own: tuple[int, ...]) -> None:
    states = {tap: torch.randn(5, 3) for tap in (2, 4, 7)}
    given = outcome(torch.cat(list(states.values()), dim=1))
    found = FeatureShare((2, 4, 7), own).of(given)
    assert torch.equal(found.rows.features, torch.cat([states[tap] for tap in own], dim=1))  # type: ignore[arg-type]
    assert (found.tree, found.committed) == (given.tree, given.committed)


def test_features_of_several_requests_are_picked_at_once() -> None:
    rng = np.random.default_rng(0)
    given = []
    for path in ((), (2,), (1, 3)):
        tree = tree_of([1, 2, 3, 4, 5], [-1, 0, 0, 1, 3])
        features = torch.from_numpy(rng.random((5, 6)))
        given.append(Outcome(tree, path, (9,) * (1 + len(path)), rows(features)))
    found = picked(given)
    for before, after in zip(given, found, strict=True):
        assert before.rows.features is not None
        assert after.features is not None
        assert torch.equal(after.features, before.rows.features[[0, *before.path]])
        assert torch.equal(after.features, step_features(before))
        assert step_features(after) is after.features
        own = FeatureShare((2, 4, 7), (7, 2)).of(after)
        assert own.features is not None
        assert torch.equal(own.features, step_features(FeatureShare((2, 4, 7), (7, 2)).of(before)))
    assert picked(given[:1]) == given[:1]
    assert picked([given[0], outcome(None)])[0] is given[0]


def test_whole_features_and_none_are_passed_on() -> None:
    given = outcome(torch.randn(5, 9))
    assert FeatureShare((2, 4, 7), (2, 4, 7)).of(given) is given
    assert FeatureShare((2, 4, 7), ()).of(given) is given
    without = Prefill(np.array([1]), 2, rows(None))
    assert FeatureShare((2, 4, 7), (4,)).of(without) is without


def test_needs_join_their_taps_in_order() -> None:
    assert (Needs(taps=(3, 1)) | Needs(taps=(1, 5)) | Needs()).taps == (3, 1, 5)


@dataclass(frozen=True)
class Both(Policy):
    """Drafts the two likeliest children of the root of each of two drafters."""

    budget: int = setting(4, "most nodes drafted in a step", least=0)
    one: str = setting("one", "a drafter", source="successors")
    other: str = setting("other", "a drafter", source="successors")

    def grow(self, growth: Growth, state: None) -> Grower:
        tree = TreeBuilder(growth.anchor)
        if growth.room:
            for source in self.sources:
                found = yield Expand(source, tree, [ROOT], 2)
                for token in found.tokens[0].tolist():
                    tree.add(ROOT, token, source)
        return tree.build("both")


def test_two_heads_with_different_taps_draft_in_one_tree() -> None:
    model = tiny_llama(layers=LAYERS)
    torch.manual_seed(3)
    config = tiny_config(vocab_size=VOCAB, hidden_size=32, target_hidden_size=32, taps=(0, 2))
    head = Eagle3Head(config)
    head.set_input_embeddings(model.get_input_embeddings())
    head.train(mode=False)
    target = attach(model, self_test=False)
    drafters = {"one": Eagle3(head), "other": Medusa(made_heads(3, target.info))}
    both = Method("both", Both(), drafters, Walk())
    seen = set[str]()

    def watch(event: Prefill | Outcome) -> None:
        if isinstance(event, Outcome):
            seen.update(event.tree.sources)

    requests = [Request([5, 3, 8, 1], 24, observer=watch), Request([2, 2, 2], 24)]
    engine = Engine(target, both, host=ModelHost(target), max_batch=2)
    found = engine.generate(requests)
    assert seen == {"root", "one", "other"}
    plain = Engine(target, method("ar"), host=ModelHost(target), max_batch=2).generate(requests)
    assert [each.tokens for each in found] == [each.tokens for each in plain]
