"""The memory of recurrent states, and of what recurrent layers keep of nodes, is told and kept."""

from collections.abc import Iterator

import pytest
import torch

from draftwood import Engine, Request, method
from draftwood.drafters._masked import MaskedDrafter
from draftwood.drafters._rollout import rollout
from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.engine.engine import _MARGIN
from draftwood.engine.memory import MemoryLimit, Size
from draftwood.engine.request import Finished
from draftwood.errors import DraftwoodError
from draftwood.kernels.gpu import BLOCK
from draftwood.protocols import Mask, Needs
from draftwood.runner.attach import attach
from draftwood.runner.masks import LayerKind
from draftwood.runner.recurrent import states
from draftwood.runner.recurrent.mixers import _names, find_mixers
from draftwood.runner.runner import Runner
from draftwood.tree import tree_of
from tests.factories.hybrid_families import FEW, HYBRIDS
from tests.factories.interpreted_attention import attend_by_kernel

NOTHING = Needs()


@pytest.fixture
def runner() -> Iterator[Runner]:
    attached = attach(HYBRIDS["qwen3_5_text"](), packing=False, self_test=False)
    yield attached
    attached.detach()


def states_of(runner: Runner) -> int:
    """Bytes of all slots' states."""
    assert runner.recurrent is not None
    return sum(each.nbytes for each in runner.recurrent._tensors.values())


def held(runner: Runner) -> int:
    """Bytes of the cache and of all slots' states."""
    return runner.cache.size * runner.info.token_bytes + states_of(runner)


def kept_of_nodes(runner: Runner) -> int:
    """Bytes of the memory in which something is kept of nodes."""
    assert runner.recurrent is not None
    forwards = {id(forward): forward for forward, _ in runner.recurrent._latest.values()}
    return sum(
        tensor.untyped_storage().nbytes()
        for forward in forwards.values()
        for kept in forward.kept.values()
        for tensor in kept.tensors
    )


def row_bytes(runner: Runner, prompt: int, new: int) -> int:
    """Bytes of the keys and values of a request of plain decoding, in rows."""
    entries = MemoryLimit(None, 1, 1, 1, 1 + _MARGIN)._entries(Size(prompt, new))
    return entries * runner.info.token_bytes


def test_memory_of_states_is_told_and_given_back(runner: Runner) -> None:
    assert runner.recurrent is not None
    slots = [runner.open(20) for _ in range(3)]
    runner.prefill(slots, [[5, 6, 7, 8]] * 3, NOTHING)
    # Three layers: 4 heads of 16 x 16 in float32, and 3 inputs of 128 channels.
    own = 3 * (4 * 16 * 16 * 4 + 3 * 128 * 4)
    assert runner.info.slot_bytes == runner.recurrent.slot_bytes == own
    for slot in slots:
        runner.release(slot)
    runner.trim()
    assert runner.recurrent.slot_bytes == 0


def test_what_is_kept_of_a_node_is_told(runner: Runner) -> None:
    # Three layers: two keys, a value and a decay of 4 heads in float32, an input of 128 channels.
    # transformers 5.17 copies keys for the heads that share them.
    names = {
        name for mixer in find_mixers(HYBRIDS["qwen3_5_text"]()) for name in _names(mixer.module)
    }
    keys = 4 if "repeat_interleave" in names else 2
    assert runner.info.node_bytes == 3 * ((keys * 16 + 4 * (16 + 1)) * 4 + 128 * 4)


@pytest.mark.parametrize("name", FEW)
def test_it_is_that_of_every_node_of_a_batch(name: str) -> None:
    runner = attach(HYBRIDS[name](), self_test=False)
    assert runner.recurrent is not None
    assert runner.info.node_bytes > 0
    slots = [runner.open(20) for _ in range(3)]
    runner.prefill(slots, [[5, 6, 7, 8]] * 3, NOTHING)
    trees = [tree_of([1, 2, 3], [-1, 0, 0]), tree_of([4], [-1]), tree_of([5, 6], [-1, 0])]
    runner.forward(slots, trees, NOTHING)
    # Trees are as long as the longest one.
    assert kept_of_nodes(runner) == 3 * 3 * runner.info.node_bytes
    runner.detach()


@pytest.mark.parametrize("name", HYBRIDS)
def test_plain_decoding_keeps_no_more_than_it_tells(name: str) -> None:
    runner = attach(HYBRIDS[name](), self_test=False)
    slot = runner.open(20)
    runner.prefill([slot], [[5, 6, 7, 8]], NOTHING)
    runner.forward([slot], [tree_of([1], [-1])], NOTHING)
    assert kept_of_nodes(runner) == runner.info.node_bytes
    runner.detach()


@pytest.mark.parametrize("name", FEW)
def test_nodes_are_kept_for_those_alone_that_still_need_them(name: str) -> None:
    """Forwards of other sequences, and the next ones of some of these, change nothing for it."""
    runner = attach(HYBRIDS[name](), self_test=False)
    own = runner.info.node_bytes
    trees = [
        tree_of([1, 2, 3, 4], [-1, 0, 0, 2]),
        tree_of([4], [-1]),
        tree_of([5, 6, 7], [-1, 0, 1]),
        tree_of([8, 9], [-1, 0]),
    ]
    paths = [[2, 3], [], [1], [1]]

    def logits_behind(*, apart: bool) -> list[torch.Tensor]:
        slots = [runner.open(30) for _ in range(4)]
        runner.prefill(slots, [[5, 6, 7, 8]] * 4, NOTHING)
        runner.forward(slots, trees, NOTHING)
        assert kept_of_nodes(runner) == 4 * 4 * own
        if apart:
            runner.commit(slots[:1], paths[:1])
            assert kept_of_nodes(runner) == 3 * 3 * own
            runner.commit([slots[2]], [paths[2]])
            assert kept_of_nodes(runner) == 2 * 2 * own
            runner.commit([slots[3], slots[1]], [paths[3], paths[1]])
        else:
            runner.commit(slots, paths)
        assert kept_of_nodes(runner) == 0
        found = [each.logits for each in runner.prefill(slots, [[3]] * 4, NOTHING)]
        for slot in slots:
            runner.release(slot)
        return found

    together, apart = logits_behind(apart=False), logits_behind(apart=True)
    for one, other in zip(together, apart, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    runner.detach()


@pytest.mark.parametrize("name", FEW)
def test_trees_that_grow_unevenly_keep_no_padding(name: str) -> None:
    runner = attach(HYBRIDS[name](), self_test=False)
    slots = [runner.open(30) for _ in range(2)]
    runner.prefill(slots, [[5, 6]] * 2, NOTHING)
    long = ([1, 2, 3, 4, 5, 6], [-1, 0, 1, 2, 3, 3])
    first = [tree_of(long[0][:5], long[1][:5]), tree_of([7], [-1])]
    runner.forward(slots, first, NOTHING)
    trees = [tree_of(*long), tree_of([7, 8, 9, 8], [-1, 0, 0, 1])]
    rows = runner.forward(slots, trees, NOTHING, done=[5, 1])
    assert kept_of_nodes(runner) == 2 * 6 * runner.info.node_bytes
    again = [tree_of([*long[0], 3], [*long[1], 5]), tree_of([7, 8, 9, 8, 2], [-1, 0, 0, 1, 3])]
    rows = runner.forward(slots, again, NOTHING, done=[6, 4])
    whole = runner.forward(slots, again, NOTHING)
    for found, expected in zip(rows, whole, strict=True):
        assert torch.allclose(found.logits[-1], expected.logits[-1], atol=1e-5)
    runner.detach()


def test_a_draft_model_keeps_little_of_requests_that_stopped_drafting() -> None:
    """Its context ends for one request after the other."""
    small = HYBRIDS["qwen3_5_text"]()
    small.config.max_position_embeddings = 48
    runner = attach(HYBRIDS["qwen3_5_text"](), self_test=False)
    engine = Engine(runner, method("sd:budget=4", draft=small))
    drafts = attach(small)
    for n in range(12, 44, 4):
        engine.add(Request([*range(3, 3 + n)], max_new_tokens=40, eos=()))
    most = 0
    while engine.busy:
        engine.step()
        most = max(most, kept_of_nodes(drafts))
    assert 0 < most <= 8 * 5 * drafts.info.node_bytes
    runner.detach()
    drafts.detach()


def test_what_came_before_an_engine_does_not_count() -> None:
    runner = attach(HYBRIDS["qwen3_5_text"]())  # with its self-test, in slots of its own
    assert held(runner) == 0
    busy = Engine(runner, "ar", max_batch=16)
    busy.generate([Request([5, 6, 7], max_new_tokens=8, eos=()) for _ in range(16)])
    memory = runner.info.slot_bytes + runner.info.node_bytes + row_bytes(runner, 3, 8)
    assert held(runner) > memory
    Engine(runner, "ar", memory=memory).generate([Request([5, 6, 7], max_new_tokens=8, eos=())])
    assert held(runner) <= memory
    runner.detach()


def test_a_tree_that_grows_forgets_the_forwards_before(runner: Runner) -> None:
    assert runner.recurrent is not None
    slot = runner.open(20)
    runner.prefill([slot], [[5, 6]], NOTHING)
    runner.forward([slot], [tree_of([1], [-1])], NOTHING)
    runner.forward([slot], [tree_of([1, 2], [-1, 0])], NOTHING, done=[1])
    forward, _ = runner.recurrent._latest[slot]
    assert forward.trees.done == 1
    assert not forward.before


def test_requests_wait_for_the_memory_of_their_states(runner: Runner) -> None:
    info = runner.info
    memory = 2 * (info.slot_bytes + info.node_bytes + row_bytes(runner, 4, 8))
    engine, most, finished = Engine(runner, method("ar"), memory=memory), 0, 0
    for seed in range(4):
        engine.add(Request([5, 6, 7, seed], max_new_tokens=8, eos=()))
    while engine.busy:
        finished += sum(isinstance(event, Finished) for event in engine.step())
        most = max(most, engine.running)
    assert (most, finished) == (2, 4)


def test_states_that_exceed_the_memory_are_named(runner: Runner) -> None:
    beside = runner.info.slot_bytes + runner.info.node_bytes
    small = Engine(runner, method("ar"), memory=beside)
    request = Request([5], max_new_tokens=1, eos=())
    told = r"for keys and values and (19\.6|20) KB for recurrent states.*do not help: raise"
    with pytest.raises(DraftwoodError, match=told):
        small.add(request)
    with pytest.raises(DraftwoodError, match=r"for recurrent states.* ask for fewer tokens"):
        Engine(runner, method("ar"), memory=beside + 10).add(request)


def test_the_memory_of_a_trees_nodes_is_counted(runner: Runner) -> None:
    budget = 8
    of_nodes = (budget + 1) * runner.info.node_bytes
    entries = MemoryLimit(None, 1, 1, 1, budget + 1 + _MARGIN)._entries(Size(3, 4))
    room = runner.info.slot_bytes + of_nodes + entries * runner.info.token_bytes
    request = Request([5, 6, 7], max_new_tokens=4, eos=())
    Engine(runner, f"goose:budget={budget}", memory=room).add(request)
    with pytest.raises(DraftwoodError, match="ask for fewer tokens"):
        Engine(runner, f"goose:budget={budget}", memory=room - 1).add(request)


def test_a_recurrent_draft_model_counts_as_well(runner: Runner) -> None:
    drafts = method("sd:budget=4", draft=HYBRIDS["qwen3_5_text"]())
    phases = Engine(runner, drafts)._phases
    # A tree of the draft model begins with up to so many tokens that it has not read.
    along = rollout._MAX_ALONG * runner.info.node_bytes
    assert phases.slot_bytes == 2 * runner.info.slot_bytes + along
    assert phases.node_bytes == 2 * runner.info.node_bytes


def test_a_model_that_reads_masks_tells_its_states(runner: Runner) -> None:
    info = runner.info
    drafter = MaskedDrafter(ModelDrafter(runner, info), Mask(1), info, ahead=2)
    along = rollout._MAX_ALONG * info.node_bytes
    assert (drafter.slot_bytes, drafter.node_bytes) == (info.slot_bytes + along, info.node_bytes)
    assert min(info.slot_bytes, info.node_bytes) > 0


def test_the_memory_of_kept_states_is_counted(runner: Runner) -> None:
    room = runner.info.slot_bytes + runner.info.node_bytes + row_bytes(runner, 3, 4)
    request = Request([5, 6, 7], max_new_tokens=4, eos=())
    Engine(runner, "ar", memory=room).add(request)
    with pytest.raises(DraftwoodError, match=r"87\.[26] KB for recurrent states"):
        Engine(runner, "ar", memory=room, prefix_cache="10MB").add(request)
    room += states.MOST_SNAPSHOTS * runner.info.slot_bytes
    Engine(runner, "ar", memory=room, prefix_cache="10MB").add(request)


def test_states_beside_a_cache_in_blocks_stay_within_the_memory(runner: Runner) -> None:
    """Slots stay when their requests end; a long request follows many short ones."""
    attend_by_kernel(runner, (LayerKind("full_attention"),), 2)
    runner.trim()
    block = BLOCK * runner.info.token_bytes
    memory = 19 * block + 6 * runner.info.slot_bytes
    engine, most = Engine(runner, method("ar"), memory=memory), 0
    for i in range(16):
        engine.add(Request([7 + i], max_new_tokens=4, eos=()))
    long = engine.add(Request([3], max_new_tokens=14 * BLOCK - 200, eos=()))
    while long not in engine._active:
        engine.step()
        assert held(runner) <= memory
        most = max(most, engine.running)
    assert most > 8
    # Its 15 blocks, one of them no one's, and those by which the pool may be larger.
    engine.step()
    assert states_of(runner) + 19 * block <= memory
    engine.cancel(long)
    assert not engine.busy
