"""The Medusa drafter against its heads run on a plain forward of the target."""

from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters.medusa.drafter import Medusa, MedusaDrafter
from draftwood.drafters.medusa.heads import MedusaHeads
from draftwood.drafters.model import Model
from draftwood.engine.host import ModelHost
from draftwood.methods import method
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import Built, Needs, RequestLoad
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT, Draw
from tests.drafters.decoded_text import DecodedText
from tests.drafters.expand_and_check import drive
from tests.factories.markov_target import FakeHost
from tests.factories.medusa_heads import made_heads
from tests.factories.tiny_llama import VOCAB, tiny_llama

HEADS, LAYERS = 4, 2


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=LAYERS), chunk=16, self_test=False)


@pytest.fixture(scope="module")
def heads(target: Runner) -> MedusaHeads:
    return made_heads(HEADS, target.info)


class HeadText(DecodedText):
    """A request of a target that decodes, and the heads on its plain hidden states."""

    def __init__(
        self,
        target: Runner,
        heads: MedusaHeads,
        drafter: MedusaDrafter,
        slot: int,
        prompt: list[int],
    ) -> None:
        self.heads = heads
        super().__init__(target, drafter, slot, prompt)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        model: Any = self.target.model
        before = torch.tensor([self.tokens[:-1]])
        last = model.model(input_ids=before).last_hidden_state[0, -1]
        place = self.builder.depths[node]
        rows = last
        for linear in self.heads.blocks[place]:  # type: ignore[attr-defined]
            rows = rows + torch.nn.functional.silu(linear(rows))
        output = self.heads.lm_heads[place] if len(self.heads.lm_heads) else model.lm_head
        found = torch.full((VOCAB,), -torch.inf)
        found[self.heads.token_ids] = output(rows)
        return found


def drafter_of(heads: MedusaHeads, target: Runner) -> MedusaDrafter:
    return MedusaDrafter(heads, target.info)


@pytest.mark.parametrize("own", [True, False])
def test_every_answer_is_that_of_the_heads(target: Runner, own: bool) -> None:
    heads = made_heads(HEADS, target.info, output=None if own else target.lm_head())
    drafter = drafter_of(heads, target)
    rng = np.random.default_rng(0)
    texts = [
        HeadText(target, heads, drafter, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((4, 9), (0, 21), (2, 1))
    ]
    levels = drive(drafter, texts, rng, 5, VOCAB)
    assert 0 < drafter.forwards <= 5 < levels, "one forward a step serves all levels"


def test_it_needs_the_last_hidden_state(target: Runner, heads: MedusaHeads) -> None:
    assert drafter_of(heads, target).needs == Needs(taps=(LAYERS,))


def test_nodes_below_the_last_head_have_no_children(target: Runner, heads: MedusaHeads) -> None:
    drafter = drafter_of(heads, target)
    text = HeadText(target, heads, drafter, 0, [1, 2, 3])
    text.builder.add_chain([11, 12, 13, 14], "context")
    [answer] = drafter.expand([0], [text.query([4, ROOT, 3], 2)])
    assert (answer.tokens[0] == -1).all()
    assert np.isneginf(answer.logq[0]).all()
    last = text.logits(3).log_softmax(-1)
    assert answer.tokens[2].tolist() == last.topk(2).indices.tolist()
    assert answer.tokens[1].tolist() == text.logits(ROOT).topk(2).indices.tolist()


def test_a_reduced_vocabulary_uses_the_targets_ids(target: Runner) -> None:
    heads = made_heads(HEADS, target.info, ids=torch.arange(24) * 9)
    drafter = drafter_of(heads, target)
    text = HeadText(target, heads, drafter, 0, [1, 2, 3])
    answer = text.ask([ROOT], 3)
    assert (answer.tokens % 9 == 0).all()


def test_padded_outputs_are_never_proposed(target: Runner) -> None:
    heads = made_heads(HEADS, target.info, ids=torch.arange(VOCAB + 8))
    heads.lm_heads[0].weight.data[VOCAB:] = 100.0  # type: ignore[operator]
    drafter = drafter_of(heads, target)
    HeadText(target, made_heads(HEADS, target.info), drafter, 0, [1, 2, 3])
    query = HeadText(target, made_heads(HEADS, target.info), drafter, 1, [4]).query([ROOT], 5)
    [answer] = drafter.expand([1], [query])
    assert 0 <= answer.tokens.min() <= answer.tokens.max() < VOCAB


def test_released_requests_are_forgotten(target: Runner, heads: MedusaHeads) -> None:
    drafter = drafter_of(heads, target)
    text = HeadText(target, heads, drafter, 0, [1, 2, 3])
    drafter.release(0)
    with pytest.raises(KeyError):
        drafter.expand([0], [text.query([ROOT], 2)])
    drafter.release(0)


def test_auto_pays_for_one_forward_a_step(target: Runner, heads: MedusaHeads) -> None:
    auto = method("auto:drafter=medusa")
    assert isinstance(auto.policy, Auto)
    spec = Medusa(heads)
    built = Built(spec, spec.build(ModelHost(target)))
    host = FakeHost(target.info)
    tuner = auto.policy.tuner(host, {"draft": built})
    load = RequestLoad(cached=10, left=50, pace=1.0, temperature=0.0)
    (forecast,) = tuner.begin([load])
    assert forecast.of("draft").at_once
    chain = {"draft": Built(Model(), Model().build(host))}
    (forecast,) = auto.policy.tuner(host, chain).begin([load])
    assert not forecast.of("draft").at_once


def test_loaded_heads_are_used_as_they_are(target: Runner, heads: MedusaHeads) -> None:
    drafter = Medusa(heads).build(ModelHost(target))
    assert Draw.WITHOUT_REPLACEMENT in Medusa.draws
    assert isinstance(drafter, MedusaDrafter)
    HeadText(target, heads, drafter, 0, [1, 2, 3]).ask([ROOT], 3)
