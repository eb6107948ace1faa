"""The simulated device counts, refuses and finds what it says: a control for each check."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from draftwood.runner.scored import Scored
from tests.simulated_cuda.device import SimulatedCuda
from tests.simulated_cuda.graphs import SimulatedGraphs


@pytest.fixture
def device() -> Iterator[SimulatedCuda]:
    with SimulatedCuda() as found:
        yield found


def pinned(size: int) -> Tensor:
    return torch.zeros(size, pin_memory=True)


def new_event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]


def test_numbers_are_those_of_a_cpu(device: SimulatedCuda) -> None:
    numbers = torch.arange(12.0).view(3, 4)
    there = numbers.to("cuda")
    assert there.device == torch.device("cuda:0")
    assert torch.equal(((there @ there.T)[1:] + 1).cpu(), (numbers @ numbers.T)[1:] + 1)
    assert device.work.per(1) == {"launches": 2, "uploads": 1, "downloads": 1, "waits": 2}
    assert not device.work.faults


def test_views_share_their_memory(device: SimulatedCuda) -> None:
    there = torch.zeros(2, 3, device="cuda")
    there[1].view(3)[:2] = 7.0
    there.index_copy_(1, torch.tensor([2], device="cuda"), torch.ones(2, 1, device="cuda"))
    assert there.tolist() == [[0, 0, 1], [7, 7, 1]]
    assert device.work.launches.total() == 4


def test_devices_are_not_mixed(device: SimulatedCuda) -> None:
    there, here = torch.ones(3, device="cuda"), torch.ones(3)
    with pytest.raises(RuntimeError, match="all tensors to be on the same device"):
        there.add(here)
    with pytest.raises(RuntimeError, match="on the same device as the indexed tensor"):
        here[torch.tensor([0], device="cuda")]
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        there.numpy()
    assert there.add(torch.tensor(2.0)).tolist() == [3, 3, 3], "a number may be on the host"


@pytest.mark.parametrize(
    "ask",
    [
        Tensor.item,
        Tensor.tolist,
        Tensor.cpu,
        torch.nonzero,
        lambda x: x[x > 0],
        lambda x: x[[0]],
        lambda x: bool(x == 1),
        lambda x: torch.tensor([1], device=x.device),
    ],
)
def test_the_host_waits(device: SimulatedCuda, ask: object) -> None:
    there = torch.ones(1, device="cuda")
    device.work.clear()
    assert callable(ask)
    ask(there)
    assert device.work.waits.total() >= 1


def test_work_in_inference_mode_stays_there(device: SimulatedCuda) -> None:
    made = torch.zeros(4, device="cuda")
    with torch.inference_mode():
        view, fresh = made[1:], torch.zeros(4, device="cuda")
        view.add_(1)
        fresh.add_(1)
    view.add_(1)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        fresh.add_(1)
    assert made.tolist() == [0, 2, 2, 2]


def test_a_buffer_must_not_change_under_an_upload(device: SimulatedCuda) -> None:
    buffer = pinned(3)
    there = buffer.to("cuda", non_blocking=True)
    buffer.fill_(5)
    torch.cuda.synchronize()
    assert there.tolist() == [0, 0, 0]
    assert sum("written while it is uploaded" in fault for fault in device.work.faults) == 1


def test_a_buffer_may_change_after_an_upload(device: SimulatedCuda) -> None:
    buffer, event = pinned(3), new_event()
    there = buffer.to("cuda", non_blocking=True)
    event.record()
    assert device.work.waits.total() == 0
    event.synchronize()
    buffer.fill_(5)
    there.copy_(buffer, non_blocking=True)
    torch.cuda.synchronize()
    assert there.tolist() == [5, 5, 5]
    assert not device.work.faults


def test_an_event_covers_only_what_was_before_it(device: SimulatedCuda) -> None:
    one, other, event = pinned(1), pinned(1), new_event()
    one.to("cuda", non_blocking=True)
    event.record()
    other.to("cuda", non_blocking=True)
    event.synchronize()
    one.fill_(1)
    other.fill_(1)
    torch.cuda.synchronize()
    assert device.work.faults.total() == 1


def test_a_download_arrives_when_it_is_waited_for(device: SimulatedCuda) -> None:
    buffer = torch.zeros(2, dtype=torch.int32, pin_memory=True)
    event = new_event()
    buffer.copy_(torch.tensor([3, 4], device="cuda"), non_blocking=True)
    event.record()
    assert buffer.tolist() != [3, 4]
    event.synchronize()
    assert buffer.tolist() == [3, 4]


def test_a_strided_upload_does_not_use_its_pinned_memory(device: SimulatedCuda) -> None:
    pinned(12).view(3, 4)[:, :2].to("cuda", non_blocking=True)
    assert list(device.work.faults) == ["a pinned buffer is uploaded in pieces, elsewhere"]


def attended(dtype: torch.dtype, heads: int, *, masked: bool) -> Tensor:
    query = torch.ones(1, heads, 3, 8, dtype=dtype, device="cuda")
    key = torch.ones(1, 2, 3, 8, dtype=dtype, device="cuda")
    mask = torch.zeros(1, 1, 3, 3, dtype=dtype, device="cuda") if masked else None
    return scaled_dot_product_attention(query, key, key, mask, enable_gqa=heads > 2)


@pytest.mark.parametrize(
    ("dtype", "heads", "masked", "repeats"),
    [
        (torch.bfloat16, 4, False, 0),
        (torch.bfloat16, 4, True, 1),
        (torch.bfloat16, 2, True, 0),
        (torch.float32, 4, False, 1),
        (torch.float32, 2, False, 0),
    ],
)
def test_slow_attention_is_a_fault(
    device: SimulatedCuda, dtype: torch.dtype, heads: int, masked: bool, repeats: int
) -> None:
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        attended(dtype, heads, masked=masked)
    assert device.work.faults.total() == repeats
    assert device.work.launches.total() >= 1


def test_a_choice_of_backends_that_may_plan_is_a_fault(device: SimulatedCuda) -> None:
    attended(torch.bfloat16, 2, masked=True)
    assert [fault for fault in device.work.faults if "cuDNN" in fault]


def test_nothing_is_left_behind() -> None:
    before = torch.tensor, torch.as_tensor, torch.nn.Module.to, torch.cuda.Event
    with SimulatedCuda():
        there = torch.zeros(1, device="cuda")
    assert (torch.tensor, torch.as_tensor, torch.nn.Module.to, torch.cuda.Event) == before
    with pytest.raises(RuntimeError, match="outside of its device"):
        there.add(1)


def test_a_graph_repeats_what_it_recorded(device: SimulatedCuda) -> None:
    """New numbers in the same memory count, and numbers of the host are as they were."""
    graphs = SimulatedGraphs(device._copies)
    there, factor = torch.ones(3, device="cuda"), [2.0]

    def step() -> Scored:
        return Scored((there * factor[0]).view(1, 3) + 1, None)

    repeat = graphs.record(step)
    assert repeat().logits.tolist() == [[3, 3, 3]]
    there.copy_(torch.tensor([1.0, 2.0, 3.0]))
    factor[0] = 5.0
    assert repeat().logits.tolist() == [[3, 5, 7]]
    device.work.clear()
    repeat()
    assert device.work.per(1)["launches"] == 1


@pytest.mark.parametrize(
    "ask",
    [Tensor.item, Tensor.cpu, lambda there: there.copy_(torch.ones(1))],
    ids=["item", "cpu", "copy_"],
)
def test_a_graph_does_not_wait_or_copy(
    device: SimulatedCuda, ask: Callable[[Tensor], object]
) -> None:
    graphs = SimulatedGraphs(device._copies)
    there = torch.ones(1, device="cuda")

    def step() -> Scored:
        ask(there)
        return Scored(there, None)

    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        graphs.record(step)
    assert there.item() == 1
