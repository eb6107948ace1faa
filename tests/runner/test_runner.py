"""Trees on real (tiny) models: every node gets what its path would have got alone."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.device_masks import DeviceMasks
from draftwood.runner.masks import TreeMasks
from draftwood.runner.runner import Runner
from draftwood.runner.static import StaticForward
from draftwood.tree import TokenTree, tree_of
from tests.factories.interpreted_attention import attend_by_kernel
from tests.factories.model_families import FAMILIES, VOCAB
from tests.factories.path_logits import (
    TOLERANCE,
    path_logits,
    plain_logits,
    random_prompts,
    random_tree,
    worst,
)

NOTHING = Needs()
LENGTHS = (7, 31, 40)


@pytest.fixture(params=sorted(FAMILIES))
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    attached = attach(FAMILIES[request.param](), chunk=16, self_test=False)
    yield attached
    attached.detach()


@pytest.fixture
def llama() -> Iterator[Runner]:
    attached = attach(FAMILIES["llama"](), chunk=16, self_test=False)
    yield attached
    attached.detach()


def prefilled(
    runner: Runner, seed: int, *lengths: int, room: int = 64
) -> tuple[np.random.Generator, list[list[int]], list[int]]:
    """A generator, random prompts of these lengths, and the slots that hold them."""
    rng = np.random.default_rng(seed)
    texts = random_prompts(rng, lengths, VOCAB)
    slots = [runner.open(room) for _ in texts]
    runner.prefill(slots, texts, NOTHING)
    return rng, texts, slots


def cached(runner: Runner, slot: int) -> list[torch.Tensor]:
    """Keys and values that a slot holds, ``[n, length, H, D]`` of all layers of one shape."""
    return list(runner.cache.saved(slot, runner.cache.length(slot)).tensors)


def cache_error(runner: Runner, slot: int, text: list[int]) -> float:
    """Largest difference of the slot's keys and values from a fresh prefill of ``text``."""
    fresh = runner.open(len(text))
    runner.prefill([fresh], [text], NOTHING)
    pairs = zip(cached(runner, slot), cached(runner, fresh), strict=True)
    error = max(float((had - made).abs().max()) for had, made in pairs)
    runner.release(fresh)
    return error


def test_the_keys_and_values_of_a_layer_are_those_of_the_text() -> None:
    attached = attach(FAMILIES["gemma4"](), chunk=16, self_test=False)
    _, texts, slots = prefilled(attached, 3, 7, 31, 12)
    tree = tree_of([4, 5, 6], [-1, 0, 0])
    attached.forward(slots, [tree] * 3, NOTHING)
    attached.commit(slots[1:2], [[2]])
    texts[1] += [4, 6]
    stored: list[Any] = []
    with torch.inference_mode():
        for text in texts:
            found = attached.model(torch.tensor([text]), return_shared_kv_states=True)
            stored.append(found.shared_kv_states)
    # Layers 1 and 2 store what layers 3 to 5 read; rows apart from one another are copied.
    for kind, layers in (("full_attention", (1, 3, 5)), ("sliding_attention", (2, 4))):
        for layer, picked in itertools.product(layers, ([0, 1, 2], [1], [0, 2])):
            keys, values = attached.keys_values([slots[i] for i in picked], layer)
            assert keys.shape[2] == max(len(texts[i]) for i in picked)
            for row, i in enumerate(picked):
                for given, expected in zip((keys, values), stored[i][kind], strict=True):
                    own = given[row, :, : len(texts[i])]
                    torch.testing.assert_close(own, expected[0], atol=1e-4, rtol=1e-4)
    attached.detach()


CPU = torch.device("cpu")


def attend_elsewhere(runner: Runner, where: str) -> None:
    """Attend as on other devices than a CPU.

    With ``masks``, by the ``kernel`` for GPUs, or by that and in ``buckets``.
    """
    forward_pass = runner._forward_pass
    on_cpu: Any = forward_pass.masks
    if where == "masks":
        facts = (on_cpu._kinds, on_cpu._group, on_cpu._dtype, CPU)
        forward_pass.masks = DeviceMasks(*facts)
        return
    cache = attend_by_kernel(runner, on_cpu._kinds, on_cpu._group)
    if where == "buckets":
        forward_pass.static = StaticForward(forward_pass.call, cache, CPU, None)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")
@pytest.mark.parametrize("where", ["cpu", "masks", "kernel", "buckets"])
def test_every_family_decodes_trees_in_a_ragged_batch(runner: Runner, where: str) -> None:
    if where != "cpu":
        attend_elsewhere(runner, where)
    rng = np.random.default_rng(1)
    model: Any = runner.model
    texts = random_prompts(rng, LENGTHS, VOCAB)
    slots = [runner.open(64) for _ in texts]
    prompt_rows = runner.prefill(slots, texts, NOTHING)
    for text, rows in zip(texts, prompt_rows, strict=True):
        expected = plain_logits(model, text)[-1:]
        assert worst(rows, expected) < TOLERANCE
        assert rows.argmax.tolist() == [int(expected.argmax())]

    # One tree alone, then all three together, of different sizes.
    alone = random_tree(rng, 12, VOCAB)
    [rows] = runner.forward(slots[2:], [alone], NOTHING)
    assert worst(rows, path_logits(model, texts[2], alone)) < TOLERANCE
    trees = [random_tree(rng, nodes, VOCAB) for nodes in (9, 1, 14)]
    batch = runner.forward(slots, trees, NOTHING)
    for text, tree, rows in zip(texts, trees, batch, strict=True):
        assert worst(rows, path_logits(model, text, tree)) < TOLERANCE

    # The deepest path is committed; the cache is then that of its text, and so is the next step.
    commit_deepest(runner, slots, trees, texts)
    trees = [random_tree(rng, nodes, VOCAB) for nodes in (1, 5, 3)]
    for text, tree, rows in zip(texts, trees, runner.forward(slots, trees, NOTHING), strict=True):
        assert worst(rows, path_logits(model, text, tree)) < TOLERANCE
    single = tree_of([5], [-1])
    [rows] = runner.forward(slots[1:2], [single], NOTHING)
    assert worst(rows, path_logits(model, texts[1], single)) < TOLERANCE


@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")
@pytest.mark.parametrize("where", ["cpu", "buckets"])
def test_a_tree_forwarded_level_by_level_equals_one_forward(runner: Runner, where: str) -> None:
    if where != "cpu":
        attend_elsewhere(runner, where)
    rng, texts, slots = prefilled(runner, 3, *LENGTHS)
    trees = [random_tree(rng, nodes, VOCAB) for nodes in (9, 4, 14)]
    whole = runner.forward(slots, trees, NOTHING)

    # In three parts, and of the second tree a part that is empty, so that it sits out a round.
    cuts = [(0, 2, 5, 9), (0, 1, 1, 4), (0, 3, 12, 14)]
    parts: list[list[torch.Tensor]] = [[], [], []]
    for first, last in itertools.pairwise(range(4)):
        taking = [i for i in range(3) if cuts[i][first] < cuts[i][last]]
        grown = [front(trees[i], cuts[i][last]) for i in taking]
        done = [cuts[i][first] for i in taking]
        found = runner.forward([slots[i] for i in taking], grown, NOTHING, done)
        for i, rows in zip(taking, found, strict=True):
            assert len(rows.argmax) == cuts[i][last] - cuts[i][first]
            parts[i].append(rows.logits)
    for rows, part in zip(whole, parts, strict=True):
        assert worst(rows, torch.cat(part)) < TOLERANCE

    commit_deepest(runner, slots, trees, texts)


def test_one_node_needs_no_mask_below_a_chain_but_below_a_fork(llama: Runner) -> None:
    _, [text], [slot] = prefilled(llama, 4, 20)
    for parents in ((-1, 0, 1, 2), (-1, 0, 0, 2), (-1, 0, 1, 1)):
        tree = tree_of((9, 8, 7, 6), parents)
        llama.forward([slot], [front(tree, 3)], NOTHING)
        [rows] = llama.forward([slot], [tree], NOTHING, [3])
        expected = path_logits(llama.model, text, tree)[3:]
        assert worst(rows, expected) < TOLERANCE


@pytest.mark.parametrize("where", ["cpu", "buckets"])
def test_nodes_that_are_not_read_are_cached(llama: Runner, where: str) -> None:
    if where != "cpu":
        attend_elsewhere(llama, where)
    rng, texts, slots = prefilled(llama, 3, *LENGTHS)
    trees = [random_tree(rng, nodes, VOCAB) for nodes in (9, 4, 14)]
    needs = Needs(top_k=2, taps=(1,))
    unread = [3, 0, 13]
    whole = llama.forward(slots, trees, needs)
    some = llama.forward(slots, trees, needs, unread=unread)
    for first, all_rows, rows in zip(unread, whole, some, strict=True):
        assert worst(rows, all_rows.logits[first:]) < TOLERANCE
        assert rows.argmax.tolist() == all_rows.argmax[first:].tolist()
        assert rows.top_tokens.tolist() == all_rows.top_tokens[first:].tolist()
        assert rows.features is not None
        assert all_rows.features is not None
        assert torch.allclose(rows.features, all_rows.features[first:], atol=TOLERANCE)
    commit_deepest(llama, slots, trees, texts)


def commit_deepest(
    runner: Runner, slots: list[int], trees: list[TokenTree], texts: list[list[int]]
) -> None:
    """Commit the deepest path of each tree; the cache must then be that of the longer text."""
    paths = [tree.path(int(tree.depths.argmax())) for tree in trees]
    runner.commit(slots, paths)
    for text, tree, path, slot in zip(texts, trees, paths, slots, strict=True):
        text += [int(tree.tokens[0]), *(int(tree.tokens[node]) for node in path)]
        assert runner.length(slot) == len(text)
        assert cache_error(runner, slot, text) < TOLERANCE


def front(tree: TokenTree, nodes: int) -> TokenTree:
    """The tree's first nodes."""
    return tree_of(tree.tokens[:nodes].tolist(), tree.parents[:nodes].tolist())


@pytest.mark.parametrize("scatter", [False, True])
def test_scattered_cache_writes_agree_with_those_of_one_piece(llama: Runner, scatter: bool) -> None:
    llama.cache.by_index = scatter
    rng, [text], [slot] = prefilled(llama, 4, 12, room=30)
    tree = random_tree(rng, 6, VOCAB)
    [rows] = llama.forward([slot], [tree], NOTHING)
    assert worst(rows, path_logits(llama.model, text, tree)) < TOLERANCE
    assert cache_error(llama, slot, text) < TOLERANCE


def test_a_batch_is_one_row_of_tokens_without_padding(
    llama: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []
    forward = llama.model.forward

    def watched(**given: Any) -> Any:
        seen.append(tuple(given["input_ids"].shape))
        return forward(**given)

    monkeypatch.setattr(llama.model, "forward", watched)
    rng, _, slots = prefilled(llama, 4, 12, 3, 30, room=30)
    trees = [random_tree(rng, size, VOCAB) for size in (1, 9, 4)]
    llama.forward(slots, trees, NOTHING)
    # The prompts in chunks of 16, then the trees.
    assert seen == [(1, 31), (1, 14), (1, 14)]


def test_a_subset_in_any_order_is_served(llama: Runner) -> None:
    rng, texts, slots = prefilled(llama, 5, 5, 9, 14, 11, room=40)
    for chosen in ([3, 0], [2, 1], [0, 3, 1], [1]):
        trees = [random_tree(rng, 4 + i, VOCAB) for i in chosen]
        found = llama.forward([slots[i] for i in chosen], trees, NOTHING)
        for i, tree, rows in zip(chosen, trees, found, strict=True):
            assert worst(rows, path_logits(llama.model, texts[i], tree)) < TOLERANCE
    paths = [tree.path(len(tree) - 1) for tree in trees]
    llama.commit([slots[1]], paths)
    texts[1] += [int(trees[0].tokens[0]), *trees[0].path_tokens(len(trees[0]) - 1)]
    assert cache_error(llama, slots[1], texts[1]) < TOLERANCE


def test_slots_survive_release_reuse_and_growth(llama: Runner) -> None:
    rng = np.random.default_rng(6)
    texts = {llama.open(10): text for text in random_prompts(rng, (8, 6, 9), VOCAB)}
    llama.prefill(list(texts), list(texts.values()), NOTHING)
    gone = next(iter(texts))
    llama.release(gone)
    del texts[gone]
    with pytest.raises(DraftwoodError, match=f"slot {gone} is not open"):
        llama.length(gone)
    for length in (70, 3, 20):
        [text] = random_prompts(rng, (length,), VOCAB)
        slot = llama.open(length)
        assert slot not in texts
        llama.prefill([slot], [text], NOTHING)
        texts[slot] = text
    # Eight rounds outgrow what the first requests asked for.
    for _ in range(8):
        trees = [random_tree(rng, 9, VOCAB) for _ in texts]
        llama.forward(list(texts), trees, NOTHING)
        paths = [tree.path(8) for tree in trees]
        llama.commit(list(texts), paths)
        for text, tree in zip(texts.values(), trees, strict=True):
            text += [int(tree.tokens[0]), *tree.path_tokens(8)]
    for slot, text in texts.items():
        assert llama.length(slot) == len(text)
        assert cache_error(llama, slot, text) < TOLERANCE


def test_release_between_forward_and_commit_moves_the_nodes_along(llama: Runner) -> None:
    rng, texts, slots = prefilled(llama, 7, 8, 6, room=30)
    trees = [random_tree(rng, 7, VOCAB) for _ in texts]
    llama.forward(slots, trees, NOTHING)
    llama.release(slots[0])
    llama.open(500)
    llama.commit(slots[1:], [trees[1].path(6)])
    texts[1] += [int(trees[1].tokens[0]), *trees[1].path_tokens(6)]
    assert cache_error(llama, slots[1], texts[1]) < TOLERANCE


def test_rolling_back_drops_the_last_tokens(llama: Runner) -> None:
    rng, [text], [slot] = prefilled(llama, 8, 20, room=40)
    llama.roll_back(slot, 11)
    assert llama.length(slot) == 11
    tree = random_tree(rng, 6, VOCAB)
    [rows] = llama.forward([slot], [tree], NOTHING)
    assert worst(rows, path_logits(llama.model, text[:11], tree)) < TOLERANCE
    with pytest.raises(DraftwoodError, match="holds 11 tokens and cannot be cut to 12"):
        llama.roll_back(slot, 12)


def test_a_released_row_is_zeroed(llama: Runner) -> None:
    slots = [llama.open(30) for _ in range(2)]
    llama.prefill(slots, [list(range(20)), list(range(30))], NOTHING)
    with torch.inference_mode():
        for tensor in llama.cache.tensors:
            tensor[:, 0, :20] = torch.nan
    llama.release(slots[0])
    fresh = llama.open(20)
    llama.prefill([fresh], [[4, 5]], NOTHING)
    # Padded attention reads of each row as many entries as the longest sequence has.
    attend_elsewhere(llama, "masks")
    found = llama.forward([slots[1], fresh], [tree_of([3], [-1])] * 2, NOTHING)
    assert all(bool(rows.logits.isfinite().all()) for rows in found)


def test_masks_are_given_back_with_the_cache(llama: Runner) -> None:
    masks = llama._forward_pass.masks
    assert isinstance(masks, TreeMasks)
    slot = llama.open(8)
    llama.prefill([slot], [[1, 2]], Needs())
    llama.forward([slot], [tree_of([3, 4, 5], [-1, 0, 0])], Needs())
    llama.trim()
    assert masks._planes
    llama.release(slot)
    llama.trim()
    assert not masks._planes


def test_a_slot_named_twice_is_refused(llama: Runner) -> None:
    slot = llama.open(20)
    llama.prefill([slot], [[1, 2]], NOTHING)
    with pytest.raises(DraftwoodError, match="named twice in one forward"):
        llama.forward([slot, slot], [tree_of([3], [-1])] * 2, NOTHING)


def test_outputs_that_a_drafter_needs_are_returned(llama: Runner) -> None:
    model: Any = llama.model
    rng, [text], [slot] = prefilled(llama, 9, 20, room=40)
    tree = random_tree(rng, 7, VOCAB)
    [rows] = llama.forward([slot], [tree], Needs(top_k=5, taps=(0, 1)))
    expected = path_logits(model, text, tree).softmax(-1)
    best = expected.topk(5)
    assert rows.top_tokens.tolist() == best.indices.tolist()
    np.testing.assert_allclose(rows.top_probs, best.values.numpy(), atol=1e-5)
    assert rows.top_probs.dtype == np.float32
    assert rows.argmax.tolist() == expected.argmax(-1).tolist()
    assert rows.features is not None
    for node in range(len(tree)):
        whole = [*text, int(tree.tokens[0]), *tree.path_tokens(node)]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([whole]), output_hidden_states=True).hidden_states
        wanted = torch.cat([states[0][0, -1], states[1][0, -1]])
        torch.testing.assert_close(rows.features[node], wanted, rtol=0, atol=TOLERANCE)
