"""The EAGLE-3 drafter against a plain, slow re-computation of the recurrence, path by path."""

from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.drafters.eagle3.drafter import Eagle3
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.engine.host import ModelHost
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT
from tests.drafters.decoded_text import DecodedText
from tests.drafters.expand_and_check import drive, sampled
from tests.factories.eagle3_heads import tiny_config
from tests.factories.tiny_llama import VOCAB, tiny_llama

TAPS = (1, 3, 2)


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=4), chunk=16, self_test=False)


def made_head(vocab: int = VOCAB) -> Eagle3Head:
    torch.manual_seed(5)
    config = tiny_config(
        vocab_size=VOCAB,
        draft_vocab_size=vocab,
        hidden_size=32,
        target_hidden_size=32,
        taps=TAPS,
        initializer_range=0.3,
    )
    head = Eagle3Head(config)
    head.set_input_embeddings(torch.nn.Embedding(VOCAB, 32))
    head.train(mode=False)
    return head


@pytest.fixture(scope="module")
def head() -> Eagle3Head:
    return made_head()


class HeadText(DecodedText):
    """A request of a target that really decodes, and the head run over every path from scratch."""

    def __init__(
        self, target: Runner, head: Eagle3Head, drafter: HeadDrafter, slot: int, prompt: list[int]
    ) -> None:
        self.head = head
        super().__init__(target, drafter, slot, prompt)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        model: Any = self.target.model
        before = torch.tensor([self.tokens[:-1]])
        states = model(input_ids=before, output_hidden_states=True).hidden_states
        features = torch.cat([states[tap] for tap in TAPS], dim=-1)
        ids, hidden = self.tokens[1:], self.head.project(features)
        for token in [*self.path(node), None]:
            output = self.head(input_ids=torch.tensor([ids]), hidden=hidden)
            if token is not None:
                ids = [*ids, token]
                hidden = torch.cat([hidden, output.hidden[:, -1:]], dim=1)
        found = torch.full((VOCAB,), -torch.inf)
        found[torch.from_numpy(self.head.target_ids())] = output.logits[0, -1]
        return found


def drafter_of(target: Runner, head: Eagle3Head) -> tuple[HeadDrafter, Runner]:
    runner = attach(head, self_test=False)
    return HeadDrafter(head, runner, target.info), runner


@pytest.fixture
def drafter(target: Runner, head: Eagle3Head) -> Any:
    made, runner = drafter_of(target, head)
    yield made
    runner.detach()


def test_every_answer_equals_the_plain_recurrence(
    target: Runner, head: Eagle3Head, drafter: HeadDrafter
) -> None:
    rng = np.random.default_rng(0)
    texts = [
        HeadText(target, head, drafter, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((4, 9), (0, 21), (2, 1))
    ]
    forwards = drive(drafter, texts, rng, 5, VOCAB)
    assert drafter.forwards == forwards


def test_copied_nodes_are_forwarded_a_generation_at_a_time(
    target: Runner, head: Eagle3Head, drafter: HeadDrafter
) -> None:
    text = HeadText(target, head, drafter, 0, [1, 2, 3])
    text.builder.add_chain([11, 12, 13], "context")
    text.builder.add(1, 14, "context")
    text.ask([3, 4, ROOT], 4)
    assert drafter.forwards == 4  # the root's, and one per depth


@pytest.mark.parametrize("kind", [1, 2])
def test_a_reduced_vocabulary_uses_the_targets_ids(target: Runner, kind: int) -> None:
    head = made_head(vocab=24)
    head.d2t.copy_(torch.arange(24) * 9)
    drafter, _ = drafter_of(target, head)
    text = HeadText(target, head, drafter, 0, [1, 2, 3])
    answer = text.ask([ROOT], 24)
    assert sorted(answer.tokens[0].tolist()) == list(range(0, 240, 10))
    answer = text.answered(sampled(text.query([ROOT], 9), kind, seed=3))
    assert set(answer.tokens[0].tolist()) <= set(range(0, 240, 10))
    assert answer.q_rows is not None
    [q] = drafter.proposals(0, answer.q_rows.tolist())
    assert set(q.nonzero()[:, 0].tolist()) == set(range(0, 240, 10))


def test_the_host_loads_the_head_once_and_shares_the_embedding(target: Runner) -> None:
    host = ModelHost(target)
    given = made_head()
    first, second = host.head(given), host.head(given)
    assert all(a is b for a, b in zip(first, second, strict=True))
    spec = Eagle3(given)
    assert spec.build(host).needs.taps == TAPS
