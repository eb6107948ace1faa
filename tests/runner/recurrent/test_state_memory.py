"""The memory of recurrent states, and of what recurrent layers keep of nodes, is told and kept."""

from collections.abc import Iterator

import pytest

from draftwood import Engine, Request, method
from draftwood.drafters._masked import MaskedDrafter
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
    # Three layers: a key, a value and a decay of 4 heads in float32, and an input of 128 channels.
    assert runner.info.node_bytes == 3 * (4 * (16 + 16 + 1) * 4 + 128 * 4)


@pytest.mark.parametrize("name", FEW)
def test_it_is_that_of_every_node_of_a_batch(name: str) -> None:
    runner = attach(HYBRIDS[name](), self_test=False)
    assert runner.recurrent is not None
    assert runner.info.node_bytes > 0
    slots = [runner.open(20) for _ in range(3)]
    runner.prefill(slots, [[5, 6, 7, 8]] * 3, NOTHING)
    trees = [tree_of([1, 2, 3], [-1, 0, 0]), tree_of([4], [-1]), tree_of([5, 6], [-1, 0])]
    runner.forward(slots, trees, NOTHING)
    forward, _ = runner.recurrent._latest[slots[0]]
    kept = [tensor for each in forward.kept.values() for tensor in each.tensors]
    # Trees are as long as the longest one.
    assert sum(each.nbytes for each in kept) == 3 * 3 * runner.info.node_bytes
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
    told = r"for keys and values and 20 KB for recurrent states.*fewer tokens do not help: raise"
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
    assert phases.slot_bytes == 2 * runner.info.slot_bytes
    assert phases.node_bytes == 2 * runner.info.node_bytes


def test_a_model_that_reads_masks_tells_its_states(runner: Runner) -> None:
    info = runner.info
    drafter = MaskedDrafter(ModelDrafter(runner, info), Mask(1), info, ahead=2)
    assert (drafter.slot_bytes, drafter.node_bytes) == (info.slot_bytes, info.node_bytes)
    assert min(info.slot_bytes, info.node_bytes) > 0


def test_the_memory_of_kept_states_is_counted(runner: Runner) -> None:
    room = runner.info.slot_bytes + runner.info.node_bytes + row_bytes(runner, 3, 4)
    request = Request([5, 6, 7], max_new_tokens=4, eos=())
    Engine(runner, "ar", memory=room).add(request)
    with pytest.raises(DraftwoodError, match=r"87\.6 KB for recurrent states"):
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
