"""Masks against a direct reading of the rule: same sequence, ancestor or prefix, within reach."""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.runner.attention import Visibility
from draftwood.runner.device_masks import DeviceMasks
from draftwood.runner.masks import LayerKind, MaskBuilder, MaskPlan, Masks, TreeMasks, layer_kinds
from draftwood.tree import TokenTree, ancestor_words, ancestors, tree_of
from tests.factories.path_logits import random_tree

CPU = torch.device("cpu")
FULL = LayerKind("full_attention")
SLIDING = LayerKind("sliding_attention", window=6)
CHUNKED = LayerKind("chunked_attention", chunk=8)


def visible(kind: LayerKind, query: int, key: int) -> bool:
    if kind.window is not None and query - key >= kind.window:
        return False
    return kind.chunk is None or query // kind.chunk == key // kind.chunk


def made(plan: MaskPlan) -> Masks:
    return plan.build(torch.from_numpy(plan.numbers))


def both(kinds: tuple[LayerKind, ...]) -> tuple[MaskBuilder, MaskBuilder]:
    return TreeMasks(kinds, 2, torch.float32), DeviceMasks(kinds, 2, torch.float32, CPU)


def by_the_rule(kind: LayerKind, length: int, tree: TokenTree) -> torch.Tensor:
    mask = torch.full((len(tree), length + len(tree)), -torch.inf)
    for node in range(len(tree)):
        at = length + int(tree.depths[node])
        for key in range(length):
            if visible(kind, at, key):
                mask[node, key] = 0
        for above in (0, *tree.path(node)):
            if visible(kind, at, length + int(tree.depths[above])):
                mask[node, length + above] = 0
    return mask


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kinds", [(FULL,), (SLIDING,), (SLIDING, FULL), (CHUNKED, FULL)])
def test_masks_follow_the_definition(
    kinds: tuple[LayerKind, ...], dtype: torch.dtype, padded: bool
) -> None:
    rng = np.random.default_rng(0)
    masks = DeviceMasks(kinds, 2, dtype, CPU) if padded else TreeMasks(kinds, 2, dtype)
    # Sizes go up and down, so that whatever a step leaves behind would show.
    for b, lengths in ((1, [5]), (3, [2, 30, 17]), (2, [31, 3]), (1, [0]), (3, [18, 32, 33])):
        trees = [random_tree(rng, int(rng.integers(1, 20)), 10_000) for _ in range(b)]
        done = [int(rng.integers(len(tree))) for tree in trees]
        counts = [len(tree) - first for tree, first in zip(trees, done, strict=True)]
        step, plan = masks.build(lengths, trees, done)
        if step in (Visibility.OPEN, Visibility.CAUSAL):
            assert (step is Visibility.OPEN) == (counts == [1] * b)
            continue
        built = made(plan)
        named = built if isinstance(built, dict) else {kinds[0].name: built}
        assert named.keys() == {kind.name for kind in kinds}
        ends = [length + len(tree) for length, tree in zip(lengths, trees, strict=True)]
        for kind in kinds:
            mask = named[kind.name]
            in_order = plan.in_order or [False] * b
            height = max(n for n, unmasked in zip(counts, in_order, strict=True) if not unmasked)
            width = max(n for n, unmasked in zip(ends, in_order, strict=True) if not unmasked)
            assert mask.shape == (b, 1, 2 * height, width)
            assert mask.dtype == dtype
            for i, tree in enumerate(trees):
                if in_order[i]:
                    assert tree.depth == tree.drafted
                    continue
                expected = by_the_rule(kind, lengths[i], tree)[done[i] :].to(dtype)
                height = max(counts) if padded else counts[i]
                for head in range(2):
                    rows = mask[i, 0, head * height :][: counts[i]]
                    assert torch.equal(rows[:, : ends[i]], expected)
                    if padded:
                        assert (rows[:, ends[i] :] == -torch.inf).all()


def test_one_token_that_sees_everything_needs_no_mask() -> None:
    single, pair = tree_of([1], [-1]), tree_of([1, 2], [-1, 0])
    full = TreeMasks((FULL,), 1, torch.float32)
    assert full.build([9], [single], [0])[0] is Visibility.OPEN
    assert full.build([9, 3], [single, pair], [0, 1])[0] is Visibility.OPEN
    padded = DeviceMasks((FULL,), 1, torch.float32, CPU)
    assert padded.build([9], [single], [0])[0] is Visibility.OPEN
    assert padded.build([9, 3], [single] * 2, [0, 0])[0] is Visibility.TREE
    for sliding in both((FULL, SLIDING)):
        assert sliding.build([5], [single], [0])[0] is Visibility.OPEN
        assert sliding.build([6], [single], [0])[0] is Visibility.TREE
    sliding = TreeMasks((FULL, SLIDING), 1, torch.float32)
    visibility, plan = sliding.build([5, 6], [single] * 2, [0, 0])
    assert visibility is Visibility.TREE
    assert plan.in_order == [True, False]


def test_chains_need_no_mask() -> None:
    chain, tree = tree_of([1, 2, 3], [-1, 0, 1]), tree_of([1, 2, 3], [-1, 0, 0])
    full = TreeMasks((FULL,), 2, torch.float32)
    for done in ([0, 0], [0, 1], [1, 1]):
        assert full.build([9, 3], [chain, chain], done)[0] is Visibility.CAUSAL
    visibility, plan = full.build([9, 3, 40], [tree, tree, tree_of([7], [-1])], [0, 1, 0])
    assert (visibility, plan.in_order) == (Visibility.TREE, [False, False, True])
    mask = made(plan)
    assert isinstance(mask, torch.Tensor)
    assert mask.shape[-1] == 9 + len(tree), "the longest sequence reads none"
    visibility, plan = full.build([9, 3], [chain, tree], [0, 0])
    assert (visibility, plan.in_order) == (Visibility.TREE, [True, False])
    assert full.build([9, 3], [tree, tree], [0, 0])[1].in_order == ()
    # The third node is at position 6, and does not see position 0.
    sliding = TreeMasks((FULL, SLIDING), 2, torch.float32)
    assert sliding.build([4], [chain], [0])[0] is Visibility.TREE
    assert sliding.build([3], [chain], [0])[0] is Visibility.CAUSAL
    for masks in both((FULL, SLIDING))[1:]:
        assert masks.build([3], [chain], [0])[1].in_order == ()


def test_masks_that_cannot_grow_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_of([1, 2, 3], [-1, 0, 0])
    masks = TreeMasks((SLIDING, FULL), 2, torch.float32)
    masks.build([4], [tree], [0])
    zeros, made_planes = torch.zeros, list[object]()

    def failing(*shape: Any, **named: Any) -> torch.Tensor:
        if made_planes:
            raise torch.OutOfMemoryError
        made_planes.append(shape)
        return zeros(*shape, **named)

    monkeypatch.setattr(torch, "zeros", failing)
    with pytest.raises(torch.OutOfMemoryError):
        masks.build([4000, 5], [tree, tree], [0, 0])
    assert len(made_planes) == 1
    monkeypatch.undo()
    for length in (5, 3000):
        found: Any = made(masks.build([length], [tree], [0])[1])
        for kind in (SLIDING, FULL):
            expected = by_the_rule(kind, length, tree)
            assert torch.equal(found[kind.name][0, 0, :3], expected)


def test_masks_take_memory_for_what_is_asked_together() -> None:
    """Sizes of 64 short texts with large trees, and of a single long one with a small tree."""
    masks, tree = TreeMasks((FULL,), 2, torch.float32), tree_of([1, 2, 3], [-1, 0, 0])
    large = tree_of(range(65), [-1, *[0] * 64])

    def kept(lengths: Sequence[int], given: TokenTree) -> int:
        found: Any = made(masks.build(lengths, [given] * len(lengths), [0] * len(lengths))[1])
        n = len(given)
        for i, length in ((0, lengths[0]), (len(lengths) - 1, lengths[-1])):
            expected = by_the_rule(FULL, length, given)
            assert torch.equal(found[i, 0, n : 2 * n, : length + n], expected)
        return int(found.untyped_storage().nbytes())

    many, long = [300] * 64, [500_000]
    assert kept(many, large) <= 4 * 64 * 256 * 512
    for _ in range(2):
        assert kept(long, tree) <= 4 * 8 * (1 << 19)
        assert kept(many, large) <= 4 * 64 * 256 * 512
    masks.trim()
    assert kept([4], tree) <= 4 * 8 * 256
    # Small masks are not made again when sizes go up and down.
    built: list[Any] = [made(masks.build([n], [tree], [0])[1]) for n in (3000, 4, 3000, 9)]
    assert len({mask.data_ptr() for mask in built}) == 1


@pytest.mark.parametrize("kinds", [(FULL,), (SLIDING, FULL), (CHUNKED,)])
def test_chunks_of_a_prompt_are_causal(kinds: tuple[LayerKind, ...]) -> None:
    starts, counts = (4, 0), (5, 3)
    on_cpu = Visibility.CAUSAL if kinds == (FULL,) else Visibility.CHUNK
    for masks, expected, group in zip(both(kinds), (on_cpu, Visibility.TREE), (1, 2), strict=True):
        visibility, plan = masks.chunk(starts, counts)
        built: Any = made(plan)
        assert visibility is expected
        if expected is Visibility.CAUSAL:
            continue
        for kind in kinds:
            mask = built[kind.name] if len(kinds) > 1 else built
            assert mask.shape == (2, 1, 5 * group, 9)
            for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
                for head, query, key in itertools.product(range(group), range(count), range(9)):
                    seen = key <= start + query and visible(kind, start + query, key)
                    row = 5 * head + query
                    assert float(mask[i, 0, row, key]) == (0 if seen else -np.inf)


def test_whole_prompts_need_no_mask() -> None:
    on_cpu, on_device = both((FULL,))
    assert on_cpu.chunk([0, 0], [5, 3])[0] is Visibility.CAUSAL
    # On a device, float32 has no fused causal kernel for grouped heads.
    assert on_device.chunk([0, 0], [5, 3])[0] is Visibility.TREE
    for group, dtype in ((1, torch.float32), (2, torch.bfloat16)):
        masks = DeviceMasks((FULL,), group, dtype, CPU)
        assert masks.chunk([0, 0], [5, 3])[0] is Visibility.CAUSAL
        assert masks.chunk([0, 1], [5, 3])[0] is Visibility.TREE


@pytest.mark.parametrize("nodes", [1, 2, 63, 64, 65, 200])
def test_ancestor_words_are_the_ancestors(nodes: int) -> None:
    parents = random_tree(np.random.default_rng(nodes), nodes, 100).parents.tolist()
    words = ancestor_words(parents)
    assert words.shape == (nodes, -(-nodes // 64))
    bits = np.unpackbits(words.copy().view(np.uint8), axis=1, bitorder="little")
    assert bits[:, :nodes].tolist() == ancestors(parents).tolist()
    assert not bits[:, nodes:].any()


def test_rows_of_a_mask_begin_where_attention_reads_them() -> None:
    masks = DeviceMasks((FULL,), 3, torch.bfloat16, CPU)
    mask: Any = made(masks.build([30], [tree_of([1, 2, 3], [-1, 0, 0])], [0])[1])
    assert mask.shape == (1, 1, 9, 33)
    assert mask.stride(2) % 16 == 0


def test_layer_kinds_are_those_of_the_models() -> None:
    def kinds(**fields: Any) -> tuple[LayerKind, ...]:
        return layer_kinds(SimpleNamespace(**fields))

    assert kinds() == (FULL,)
    assert kinds(sliding_window=None) == (FULL,)
    assert kinds(sliding_window=6) == (SLIDING,)
    assert kinds(attention_chunk_size=8) == (CHUNKED,)
    mixed = ["sliding_attention", "full_attention", "sliding_attention"]
    assert kinds(sliding_window=6, layer_types=mixed) == (SLIDING, FULL)
    assert kinds(sliding_window=6, layer_types=["full_attention"]) == (FULL,)
    with pytest.raises(DraftwoodError, match="'linear_attention' keep a state that cannot branch"):
        kinds(layer_types=["linear_attention", "full_attention"])
