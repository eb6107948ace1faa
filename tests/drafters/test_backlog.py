"""Tokens that a draft model has not read: cached in chunks, without a row of logits for each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters._rollout import rollout
from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.protocols import (
    MOST_READ,
    Candidates,
    Drafter,
    Expand,
    Outcome,
    Prefill,
    TargetInfo,
    TargetOutput,
)
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT, TreeBuilder
from tests.factories.eagle3_heads import HT, LAYERS, V, tiny_config, tiny_head
from tests.factories.tiny_llama import VOCAB, tiny_llama

CHUNK = 64
BACKLOG = 2001
TARGET = TargetInfo(V, 4096, LAYERS, HT, torch.device("cpu"), torch.float32)


def text_model() -> tuple[Drafter, Runner]:
    runner = attach(tiny_llama(context=4096), chunk=CHUNK, self_test=False)
    return ModelDrafter(runner, replace(TARGET, vocab_size=VOCAB)), runner


def eagle_head() -> tuple[Drafter, Runner]:
    head: Eagle3Head = tiny_head()
    runner = attach(head, chunk=CHUNK, self_test=False)
    return HeadDrafter(head, runner, TARGET), runner


MAKERS = [text_model, eagle_head]


class Forwards:
    """Rows and rows of logits of every forward of a model."""

    def __init__(self, runner: Runner) -> None:
        self.rows: list[tuple[int, int]] = []
        runner.model.register_forward_hook(self.note, with_kwargs=True)

    def note(self, model: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        self.rows.append((kwargs["input_ids"].shape[1], output.logits.shape[1]))

    def taken(self) -> list[tuple[int, int]]:
        found, self.rows = self.rows, []
        return found


def features(n: int, seed: int) -> TargetOutput:
    """Rows of the target of which only features are read."""
    taps = len(tiny_config().taps)
    made = torch.randn(n, taps * HT, generator=torch.Generator().manual_seed(seed))
    nothing: Any = None
    return TargetOutput(nothing, nothing, nothing, nothing, made)


class Story:
    """A request that is prompted, then goes on without a draft, then drafts trees."""

    def __init__(self, drafter: Drafter, slot: int, prompt: int) -> None:
        self.drafter, self.slot = drafter, slot
        self.rng = np.random.default_rng(slot)
        self.root = 5
        ids = self.rng.integers(V, size=prompt)
        drafter.begin(slot, Prefill(ids, self.root, features(prompt, slot)))

    def settle(self, tree: TreeBuilder, path: tuple[int, ...]) -> None:
        bonus = int(self.rng.integers(V))
        committed = (*(tree.tokens[node] for node in path), bonus)
        rows = features(len(tree), bonus)
        self.drafter.observe(self.slot, Outcome(tree.build(), path, committed, rows))
        self.root = bonus

    def idle(self, tokens: int) -> None:
        for _ in range(tokens):
            self.settle(TreeBuilder(self.root), ())

    def query(self, tree: TreeBuilder, nodes: list[int]) -> Expand:
        return Expand("draft", tree, nodes, 4)

    def draft(self) -> list[Candidates]:
        """Two levels, of which a path is accepted."""
        tree = TreeBuilder(self.root)
        [first] = self.drafter.expand([self.slot], [self.query(tree, [ROOT])])
        nodes = [tree.add(ROOT, int(token), "draft") for token in first.tokens[0]]
        [second] = self.drafter.expand([self.slot], [self.query(tree, nodes)])
        leaf = tree.add(nodes[1], int(second.tokens[1, 0]), "draft")
        self.settle(tree, (nodes[1], leaf))
        return [first, second]


@pytest.mark.parametrize("make", MAKERS)
def test_a_long_backlog_is_read_in_chunks_with_few_rows_of_logits(
    make: Callable[[], tuple[Drafter, Runner]],
) -> None:
    drafter, runner = make()
    forwards = Forwards(runner)
    story = Story(drafter, 0, prompt=9)
    story.idle(BACKLOG - 10)
    before = drafter.backlog(0)
    assert BACKLOG - 2 <= before <= BACKLOG - 1
    assert forwards.taken() == [], "nothing is read before a draft is wanted"
    story.draft()
    *chunks, root, level = forwards.taken()
    assert sum(rows for rows, _ in chunks) == before
    assert max(rows for rows, _ in chunks) == CHUNK
    assert {logits for _, logits in chunks} == {1}
    assert (root, level) == ((1, 1), (4, 4))
    assert drafter.backlog(0) <= 2
    assert drafter.forwards == 2


@pytest.mark.parametrize("make", MAKERS)
def test_drafts_are_those_of_one_forward_over_everything(
    make: Callable[[], tuple[Drafter, Runner]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[Candidates]] = []
    most = []
    for along in (rollout._MAX_ALONG, 1 << 30):
        monkeypatch.setattr(rollout, "_MAX_ALONG", along)
        drafter, runner = make()
        forwards = Forwards(runner)
        stories = [Story(drafter, slot, prompt) for slot, prompt in ((3, 40), (0, 2), (1, 1))]
        drafts = []
        for idle in (300, 0, 5, 30, 0, 70):
            for i, story in enumerate(stories):
                story.idle(idle if i else 0)
            for story in stories:
                drafts += story.draft()
        found.append(drafts)
        taken = forwards.taken()
        most.append(max(rows for rows, _ in taken))
        assert max(logits for _, logits in taken) <= 4, "of tokens that are asked about only"
    assert most[1] >= 70 > most[0], "the plain way reads the backlog along with the level"
    for ours, plain in zip(*found, strict=True):
        assert ours.tokens.tolist() == plain.tokens.tolist()
        np.testing.assert_allclose(ours.logq, plain.logq, atol=1e-4)


@pytest.mark.parametrize("make", MAKERS)
def test_some_sequences_of_a_batch_may_have_a_backlog(
    make: Callable[[], tuple[Drafter, Runner]],
) -> None:
    def answers(together: bool) -> list[list[list[int]]]:
        drafter, _ = make()
        stories = [Story(drafter, slot, 3 + slot) for slot in range(3)]
        stories[0].idle(100)
        stories[2].idle(33)
        trees = [TreeBuilder(story.root) for story in stories]
        queries = [s.query(tree, [ROOT]) for s, tree in zip(stories, trees, strict=True)]
        if together:
            got = drafter.expand([0, 1, 2], queries)
        else:
            got = [drafter.expand([i], [queries[i]])[0] for i in range(3)]
        return [each.tokens.tolist() for each in got]

    assert answers(together=True) == answers(together=False)


def test_without_a_backlog_a_level_is_one_forward() -> None:
    drafter, runner = text_model()
    forwards = Forwards(runner)
    story = Story(drafter, 0, prompt=30)
    story.draft()
    forwards.taken()
    story.idle(3)
    story.draft()
    assert forwards.taken() == [(5, 1), (4, 4)]


@pytest.mark.parametrize("make", MAKERS)
def test_beside_others_a_prompt_is_read_in_pieces(
    make: Callable[[], tuple[Drafter, Runner]],
) -> None:
    drafter, runner = make()
    drafter.read_in_pieces()
    everyone = [Story(drafter, slot, n) for slot, n in enumerate((5, BACKLOG, 300))]
    forwards, found = Forwards(runner), list[list[Candidates]]()
    for _ in range(6):
        trees = [TreeBuilder(story.root) for story in everyone]
        queries = [s.query(tree, [ROOT]) for s, tree in zip(everyone, trees, strict=True)]
        found.append(drafter.expand([s.slot for s in everyone], queries))
        again = drafter.expand([1], queries[1:2])
        assert again[0].tokens.tolist() == found[-1][1].tokens.tolist(), "no more in this step"
        read = sum(rows for rows, _ in forwards.taken())
        assert read <= MOST_READ + 5 + 300 + 3 * (rollout._MAX_ALONG + 1)
        for story, tree in zip(everyone, trees, strict=True):
            story.settle(tree, ())
    drafted = [[bool((each.tokens >= 0).any()) for each in step] for step in found]
    # Three pieces and the rest; short prompts are read at once.
    assert drafted == [[True, False, True]] * 3 + [[True, True, True]] * 3
    alone, _ = make()
    for slot, n in enumerate((5, BACKLOG, 300)):
        story = Story(alone, slot, n)
        story.idle(5)
        tree = TreeBuilder(story.root)
        [plain] = alone.expand([slot], [story.query(tree, [ROOT])])
        assert found[-1][slot].tokens.tolist() == plain.tokens.tolist()
        alone.release(slot)
