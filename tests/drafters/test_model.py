"""The draft model: its answers are what the plain model says after each path, and nothing twice."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.drafters.model import Model
from draftwood.protocols import Expand, Prefill, TargetInfo, TargetOutput
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import ROOT, Draw, TreeBuilder
from tests.drafters.expand_and_check import Text, drive
from tests.factories.markov_target import FakeHost
from tests.factories.model_families import FAMILIES, VOCAB
from tests.factories.path_logits import plain_logits

ANY_ROWS: Any = None


@pytest.fixture
def runner() -> Runner:
    return attach(FAMILIES["llama"](), chunk=16, self_test=False)


@pytest.fixture
def drafter(runner: Runner) -> ModelDrafter:
    return ModelDrafter(runner, target_of(VOCAB))


def target_of(vocab: int) -> TargetInfo:
    return TargetInfo(vocab, 256, 1, 1, torch.device("cpu"), torch.float32)


class PlainText(Text):
    """A request, checked against the plain model."""

    def __init__(self, drafter: ModelDrafter, model: Any, slot: int, prompt: Sequence[int]) -> None:
        super().__init__(drafter, slot, Prefill(np.array(prompt, dtype=np.int64), 7, ANY_ROWS))
        self.model = model

    def logits(self, node: int) -> torch.Tensor:
        return plain_logits(self.model, self.tokens + self.path(node))[-1]

    def best(self, node: int, k: int) -> list[int]:
        found: list[int] = self.logits(node).topk(k).indices.tolist()
        return found


def test_every_answer_equals_the_plain_model(drafter: ModelDrafter, runner: Runner) -> None:
    rng = np.random.default_rng(0)
    texts = [
        PlainText(drafter, runner.model, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((5, 9), (0, 23), (2, 1))
    ]
    forwards = drive(drafter, texts, rng, 6, VOCAB)
    assert drafter.forwards == forwards


def test_nodes_of_other_drafters_are_forwarded_as_ancestors(
    drafter: ModelDrafter, runner: Runner
) -> None:
    text = PlainText(drafter, runner.model, 0, [1, 2, 3])
    text.builder.add_chain([11, 12, 13], "context")
    text.ask([ROOT, 3], 4)
    assert drafter.forwards == 1
    # Node 2 lies on node 3's path: it is known, even for more candidates than were asked for.
    text.ask([2, 1], 9)
    assert drafter.forwards == 1


def test_another_tree_may_be_verified(drafter: ModelDrafter, runner: Runner) -> None:
    text = PlainText(drafter, runner.model, 0, [1, 2, 3])
    first = text.builder.add(ROOT, 11, "draft")
    second = text.builder.add(ROOT, 12, "draft")
    drafter.expand([0], [text.query([ROOT, first, second], 2)])
    # Only the second is kept, under another number; the first is the bonus all the same.
    text.builder = TreeBuilder(7)
    text.builder.add(ROOT, 12, "draft")
    text.finish(bonus=11)
    text.ask([ROOT], 3)


def test_excluded_tokens_are_replaced_by_the_next_ones(
    drafter: ModelDrafter, runner: Runner
) -> None:
    text = PlainText(drafter, runner.model, 0, [1, 2, 3])
    best = text.best(ROOT, 4)
    exclude = [frozenset({best[0], best[2]})]
    [answer] = drafter.expand([0], [Expand("draft", text.builder, [ROOT], 2, exclude=exclude)])
    assert answer.tokens.tolist() == [[best[1], best[3]]]


def test_smaller_vocabularies_on_either_side(runner: Runner) -> None:
    # The target has fewer tokens: the draft model's others are never offered.
    drafter = ModelDrafter(runner, target_of(4))
    text = PlainText(drafter, runner.model, 0, [1, 2, 3])
    everything = text.best(ROOT, VOCAB)
    [answer] = drafter.expand([0], [text.query([ROOT], VOCAB)])
    offered = [token for token in everything if token < 4]
    assert answer.tokens[0].tolist() == offered + [-1] * (VOCAB - 4)
    # The target has more: they are shown to the draft model as its last one.
    drafter = ModelDrafter(runner, target_of(VOCAB + 9))
    text = PlainText(drafter, runner.model, 0, [1, VOCAB + 5, 3])
    text.tokens[1] = VOCAB - 1
    text.builder.add(ROOT, VOCAB + 2, "context")
    query = text.query([ROOT, 1], 2)
    [answer] = drafter.expand([0], [query])
    text.builder.tokens[1] = VOCAB - 1
    text.check(query, answer)


@pytest.mark.parametrize("k", [3, 20])
def test_outputs_beyond_the_target_are_masked_before_ranking(runner: Runner, k: int) -> None:
    kept = VOCAB - 32
    head = runner.model.lm_head
    with torch.no_grad():
        # The model is all but certain of tokens that the target does not have.
        head.weight[kept:] = 50 * head.weight[kept:]
    drafter = ModelDrafter(runner, target_of(kept))
    text = PlainText(drafter, runner.model, 0, [1, 2, 3])
    text.builder.add_chain([5, 6], "context")
    for nodes in ([ROOT], [ROOT, 1, 2]):
        wanted = torch.stack([text.logits(node)[:kept] for node in nodes]).log_softmax(-1)
        query = text.query(nodes, k)
        [ranked] = drafter.expand([0], [query])
        assert ranked.tokens.tolist() == wanted.topk(k).indices.tolist()
        torch.testing.assert_close(
            torch.tensor(ranked.logq), wanted.topk(k).values, atol=1e-4, rtol=0
        )
        drawing = dataclasses.replace(
            query, draw=Draw.WITHOUT_REPLACEMENT, noise=RequestNoise(seed=k)
        )
        [drawn] = drafter.expand([0], [drawing])
        assert drawn.tokens.max() < kept
        assert drawn.q_rows is not None
        q = drafter.proposals(0, drawn.q_rows.tolist())
        assert q.shape == (len(nodes), kept)
        torch.testing.assert_close(q, wanted.exp(), atol=1e-5, rtol=0)
        torch.testing.assert_close(q.sum(dim=1), torch.ones(len(nodes)))


def test_beyond_the_draft_models_context_there_are_no_candidates(runner: Runner) -> None:
    limit = runner.info.context_limit
    drafter = ModelDrafter(runner, target_of(VOCAB))
    rng = np.random.default_rng(1)
    long = PlainText(drafter, runner.model, 0, rng.integers(VOCAB, size=limit - 1).tolist())
    short = PlainText(drafter, runner.model, 1, [4, 5])
    for text in (long, short):
        text.builder.add(ROOT, 11, "draft")
    queries = [long.query([ROOT], 3), short.query([ROOT], 3)]
    answers = drafter.expand([0, 1], queries)
    long.check(queries[0], answers[0])
    short.check(queries[1], answers[1])
    queries = [long.query([1], 3), short.query([1], 3)]
    answers = drafter.expand([0, 1], queries)
    assert answers[0].tokens.tolist() == [[-1, -1, -1]]
    short.check(queries[1], answers[1])
    long.finish(bonus=9)
    forwards = drafter.forwards
    [answer] = drafter.expand([0], [long.query([ROOT], 3)])
    assert answer.tokens.tolist() == [[-1, -1, -1]]
    assert drafter.forwards == forwards


@pytest.mark.parametrize("vocab", [VOCAB, VOCAB // 2])
def test_ranking_a_level_equals_ranking_node_by_node(runner: Runner, vocab: int) -> None:
    answers = []
    for slot, node_by_node in enumerate((False, True)):
        drafter = ModelDrafter(runner, target_of(vocab))
        drafter._rollout.node_by_node = node_by_node
        text = PlainText(drafter, runner.model, slot, [1, 2, 3])
        text.builder.add_chain([5, 6], "context")
        found = [
            drafter.expand([slot], [text.query(nodes, k)])[0]
            for nodes, k in (([ROOT], 3), ([1, 2], 4), ([2, 1], 2), ([ROOT, 2], 3), ([2], 9))
        ]
        answers.append([(each.tokens.tolist(), each.logq.tolist()) for each in found])
    assert answers[0] == answers[1]


def test_estimates_at_another_temperature(drafter: ModelDrafter, runner: Runner) -> None:
    text = PlainText(drafter, runner.model, 0, [1, 2, 3])
    text.builder.add(ROOT, 8, "given")
    query = dataclasses.replace(text.query([ROOT, 1], 4), temperature=0.6)
    assert text.answered(query).q_rows is None
    best = text.best(ROOT, 3)
    query = dataclasses.replace(query, exclude=[frozenset({best[1]}), frozenset()], k=VOCAB)
    [answer] = drafter.expand([0], [query])
    expected = (text.logits(ROOT) / 0.6).log_softmax(-1)
    assert answer.tokens[0, :2].tolist() == [best[0], best[2]]
    assert answer.logq[0, :2].tolist() == pytest.approx(
        expected[[best[0], best[2]]].tolist(), abs=1e-4
    )
    assert (answer.tokens[0, -1], answer.logq[0, -1]) == (-1, -np.inf)


def test_slots_are_released(drafter: ModelDrafter, runner: Runner) -> None:
    for _ in range(3):
        text = PlainText(drafter, runner.model, 4, [1, 2, 3])
        drafter.expand([4], [text.query([ROOT], 2)])
    drafter.release(4)
    drafter.release(4)
    assert runner.open(8) == 0


def test_the_settings_get_the_model_from_the_host() -> None:
    drafter = Model("some/name").build(FakeHost(target_of(13)))
    rows: TargetOutput = ANY_ROWS
    drafter.begin(0, Prefill(np.array([1, 2]), 3, rows))
    [answer] = drafter.expand([0], [Expand("draft", TreeBuilder(3), [ROOT], 13)])
    assert sorted(answer.tokens[0].tolist()) == list(range(13))
    assert float(np.exp(answer.logq).sum()) == pytest.approx(1, abs=1e-5)
