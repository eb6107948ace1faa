"""Forwards in buckets: which bucket, when one is recorded, and what happens where none can be."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from draftwood import recordings
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.block_cache import BlockCache
from draftwood.runner.device_trees import DeviceTrees, SeenPlan
from draftwood.runner.masks import LayerKind
from draftwood.runner.runner import Runner
from draftwood.runner.scored import Scored
from draftwood.runner.static import Bucket, Forward, StaticForward, bucket_for
from draftwood.tree import tree_of
from tests.factories.interpreted_attention import attend_by_kernel, interpreted_attention
from tests.factories.model_families import FAMILIES, VOCAB
from tests.factories.path_logits import TOLERANCE, path_logits, random_prompts, random_tree, worst

CPU = torch.device("cpu")


class CountingGraphs:
    """Repeats a step by calling it, and counts what is recorded."""

    def __init__(self) -> None:
        self.recorded = self.forgotten = 0

    def record(self, forward: Forward) -> Forward:
        self.recorded += 1
        return forward

    def forget(self) -> None:
        self.forgotten += 1


class RefusingGraphs:
    """Nothing can be recorded."""

    tried = 0

    def record(self, forward: Forward) -> Forward:
        self.tried += 1
        raise RuntimeError("operation not permitted when stream is capturing")

    def forget(self) -> None: ...


@pytest.fixture
def runner() -> Iterator[Runner]:
    attached = attach(FAMILIES["llama"](), packing=False, chunk=16, self_test=False)
    attend_by_kernel(attached, (LayerKind("full_attention"),), 2)
    yield attached
    attached.detach()


def in_buckets(runner: Runner, graphs: CountingGraphs | RefusingGraphs) -> StaticForward:
    forward_pass = runner._forward_pass
    assert isinstance(forward_pass.cache, BlockCache)
    static = StaticForward(forward_pass.call, forward_pass.cache, CPU, graphs)
    forward_pass.static = static
    return static


def plan(counts: list[int], *, reach: int | None = None, nodes: int | None = None) -> SeenPlan:
    trees = [tree_of([1] * n, range(-1, n - 1)) for n in counts]
    if nodes is not None:
        trees[0] = tree_of([1] * nodes, range(-1, nodes - 1))
    done = [len(tree) - count for tree, count in zip(trees, counts, strict=True)]
    kinds = (LayerKind("some", window=reach),)
    masks = DeviceTrees(interpreted_attention(), kinds, 1, torch.float32, CPU)
    return masks.build([0] * len(trees), trees, done)[1]


def test_a_bucket_is_the_smallest_that_holds_the_trees() -> None:
    def shape(*counts: int) -> tuple[int, int, int] | None:
        found = bucket_for(plan(list(counts)), (), 0)
        return None if found is None else (found.sequences, found.nodes, found.largest)

    assert shape(1) == (1, 1, 1)
    assert shape(3) == (1, 4, 4)
    assert shape(65) == (1, 96, 128)
    assert shape(129) is None
    assert shape(1, 5, 8) == (4, 16, 16)
    assert shape(1, 1, 1) == (4, 4, 1)
    assert shape(*[1] * 16, 60) == (64, 96, 64)
    assert shape(*[60] * 8) == (16, 512, 64)
    assert shape(*[60] * 17) == (64, 1024, 64)
    assert shape(*[60] * 18) is None
    assert shape(*[1] * 65) == (128, 96, 1)
    assert shape(*[1] * 257) is None


def test_a_bucket_knows_words_and_depths() -> None:
    few, many = bucket_for(plan([4]), (), 0), bucket_for(plan([4], nodes=130), (1, 2), 32)
    assert few is not None
    assert many is not None
    assert (few.width, few.depths, few.taps, few.vector_width) == (1, 0, (), 0)
    assert (many.width, many.depths, many.taps, many.vector_width) == (4, 0, (1, 2), 32)
    limited = bucket_for(plan([4], reach=8), (), 0)
    assert limited is not None
    assert limited.depths == 64


def test_a_bucket_is_recorded_once_and_again_when_the_cache_has_moved(runner: Runner) -> None:
    graphs = CountingGraphs()
    in_buckets(runner, graphs)
    rng = np.random.default_rng(0)
    [text] = random_prompts(rng, (20,), VOCAB)
    slot = runner.open(40)
    runner.prefill([slot], [text], Needs())

    def forward(nodes: int) -> None:
        tree = random_tree(rng, nodes, VOCAB)
        [rows] = runner.forward([slot], [tree], Needs())
        assert worst(rows, path_logits(runner.model, text, tree)) < TOLERANCE

    for nodes, recorded in ((5, 1), (8, 1), (6, 1), (9, 2), (7, 2)):
        forward(nodes)
        assert graphs.recorded == recorded
    runner.cache.make_room([runner.cache.row(runner.open(40))], [4000])
    forward(7)
    assert graphs.recorded == 3


def test_an_output_outlives_the_next_forward_of_its_bucket(runner: Runner) -> None:
    memory: list[Scored] = []

    class OneMemory(CountingGraphs):
        """As a CUDA graph: the output is always in the same memory."""

        def record(self, forward: Forward) -> Forward:
            memory.append(forward())

            def repeat() -> Scored:
                memory[0].logits.copy_(forward().logits)
                return memory[0]

            return repeat

    in_buckets(runner, OneMemory())
    rng = np.random.default_rng(1)
    [text] = random_prompts(rng, (20,), VOCAB)
    slot = runner.open(40)
    runner.prefill([slot], [text], Needs())
    first, second = (random_tree(rng, 8, VOCAB) for _ in range(2))
    [rows] = runner.forward([slot], [first], Needs())
    runner.forward([slot], [second], Needs())
    assert len(memory) == 1
    assert worst(rows, path_logits(runner.model, text, first)) < TOLERANCE


def test_a_model_that_cannot_be_recorded_runs_as_it_is(
    runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    graphs = RefusingGraphs()
    static = in_buckets(runner, graphs)
    rng = np.random.default_rng(2)
    [text] = random_prompts(rng, (20,), VOCAB)
    slot = runner.open(40)
    runner.prefill([slot], [text], Needs())
    with caplog.at_level(logging.WARNING):
        for nodes, tried in ((8, 1), (8, 1), (3, 2), (3, 2), (12, 2)):
            tree = random_tree(rng, nodes, VOCAB)
            [rows] = runner.forward([slot], [tree], Needs())
            assert worst(rows, path_logits(runner.model, text, tree)) < TOLERANCE
            assert graphs.tried == tried
            assert static.refused == (tried == 2)
    assert [record.message for record in caplog.records] == 2 * [
        "forwards are not recorded, which takes longer: operation not permitted when stream is "
        "capturing"
    ]


class SometimesGraphs(CountingGraphs):
    """Records what it is asked for but for some of the first ones."""

    def __init__(self, fails: tuple[int, ...]) -> None:
        super().__init__()
        self._fails, self.tried = fails, 0

    def record(self, forward: Forward) -> Forward:
        self.tried += 1
        if self.tried in self._fails:
            raise torch.OutOfMemoryError("no memory for another graph")
        return super().record(forward)


def test_what_is_recorded_is_repeated_after_failures(runner: Runner) -> None:
    """Two failures one after another end the trying until the cache has moved."""
    graphs = SometimesGraphs((2, 4, 5))
    static = in_buckets(runner, graphs)
    rng = np.random.default_rng(2)
    [text] = random_prompts(rng, (20,), VOCAB)
    slot = runner.open(40)
    runner.prefill([slot], [text], Needs())

    def forward(nodes: int) -> tuple[int, int]:
        with recordings.at_once():
            tree = random_tree(rng, nodes, VOCAB)
            [rows] = runner.forward([slot], [tree], Needs())
        assert worst(rows, path_logits(runner.model, text, tree)) < TOLERANCE
        assert not static.refused
        return graphs.tried, graphs.recorded

    assert [forward(n) for n in (1, 2, 4)] == [(1, 1), (2, 1), (3, 2)]
    assert [forward(n) for n in (8, 16, 32)] == [(4, 2), (5, 2), (5, 2)]
    assert forward(4) == (5, 2)
    runner.cache.make_room([runner.cache.row(runner.open(40))], [16_000])
    assert [forward(n) for n in (32, 4)] == [(6, 3), (7, 4)]


def test_large_buckets_that_fail_say_nothing_of_others(runner: Runner) -> None:
    graphs = RefusingGraphs()
    static = in_buckets(runner, graphs)
    rng = np.random.default_rng(2)
    texts = random_prompts(rng, (5,) * 9, VOCAB)
    slots = [runner.open(80) for _ in texts]
    runner.prefill(slots, texts, Needs())
    for nodes in (60, 75):
        runner.forward(slots, [random_tree(rng, nodes, VOCAB) for _ in slots], Needs())
    assert graphs.tried == 2
    assert not static.refused


def test_a_forward_is_recorded_anew_when_the_model_has_changed(runner: Runner) -> None:
    graphs = CountingGraphs()
    in_buckets(runner, graphs)
    tree, recorded = tree_of([5], [-1]), []
    model: Any = runner.model

    def forward() -> None:
        slot = runner.open(40)
        runner.prefill([slot], [[1, 2, 3]], Needs())
        runner.forward([slot], [tree], Needs())
        runner.release(slot)
        recorded.append(graphs.recorded)

    forward()
    forward()
    layer = model.model.layers[0]
    hook = layer.register_forward_hook(lambda *_: None)
    forward()
    hook.remove()
    forward()
    layer.mlp.up_proj.weight = nn.Parameter(layer.mlp.up_proj.weight.detach().clone())
    forward()
    layer.mlp.merged_adapters = ["one"]
    forward()
    forward()
    assert recorded == [1, 1, 2, 3, 4, 5, 5]


def test_many_further_numbers_do_not_move_the_others(runner: Runner) -> None:
    graphs = CountingGraphs()
    in_buckets(runner, graphs)
    slot = runner.open(40)
    runner.prefill([slot], [[1, 2, 3]], Needs())
    for size in (3, 100_000, 5):
        numbers = np.arange(size)
        found = runner.submit([slot], [tree_of([5], [-1])], Needs(), numbers)
        assert found.numbers.tolist() == numbers.tolist()
    assert graphs.recorded == 1


def test_a_rare_size_runs_in_a_larger_bucket_that_is_recorded(runner: Runner) -> None:
    graphs = CountingGraphs()
    static = in_buckets(runner, graphs)
    rng = np.random.default_rng(0)
    texts = random_prompts(rng, (20, 12, 9), VOCAB)
    slots = [runner.open(80) for _ in texts]
    runner.prefill(slots, texts, Needs())

    def forward(*nodes: int) -> int:
        trees = [random_tree(rng, n, VOCAB) for n in nodes]
        own = slots[: len(trees)]
        before, noted = graphs.recorded, recordings.count()
        for rows, text, tree in zip(
            runner.forward(own, trees, Needs()), texts, trees, strict=False
        ):
            assert worst(rows, path_logits(runner.model, text, tree)) < TOLERANCE
        # Of recordings alone: the time of a forward in larger shapes is that of such a step now.
        assert recordings.count() - noted == 2 * (graphs.recorded - before)
        return graphs.recorded

    assert forward(20, 30) == 1
    # Two trees of 64 nodes in all hold smaller ones, and fewer of them.
    assert [forward(15, 1) for _ in range(18)] == [1] * 16 + [2] * 2
    assert [forward(12) for _ in range(17)] == [2] * 16 + [3]
    # The least that holds a tree is taken: of 16 nodes rather than 64.
    assert forward(13) == 3
    assert forward(6) == 3
    assert static._padded[Bucket(1, 8, 16, 1, 0, (), 0, 0)] == 1
    # Nothing holds larger ones.
    assert forward(40, 30) == 4
    assert forward(60, 60, 20) == 5
    # Far larger shapes would take longer, but for a few nodes.
    static._recorded = {key: each for key, each in static._recorded.items() if key.nodes > 128}
    assert forward(1) == 6
    with recordings.at_once():
        assert [forward(7), forward(7)] == [7, 7]


@pytest.mark.parametrize(
    ("field", "value"), [("taps", (1,)), ("vector_width", 8), ("top_k", None), ("depths", 64)]
)
def test_a_bucket_of_other_outputs_or_numbers_holds_no_trees(field: str, value: Any) -> None:
    large, small = Bucket(4, 64, 64, 2, 0, (), 0, 5), Bucket(2, 8, 4, 1, 0, (), 0, 5)
    assert large.holds(small)
    assert small.holds(small)
    assert not small.holds(large)
    assert not large.holds(small._replace(**{field: value}))
    assert not large._replace(**{field: value}).holds(small)


def test_windows_are_padded_with_their_depths() -> None:
    large, small = Bucket(4, 64, 64, 2, 128, (), 0, 5), Bucket(2, 8, 4, 1, 64, (), 0, 5)
    assert large.holds(small)
    assert not large._replace(depths=32).holds(small)
