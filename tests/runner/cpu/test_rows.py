"""The compiled linear equals float64's, whatever the rows beside a row; what it passes on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwood.runner.cpu.rows import RowsLinear, available

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler, or another OpenMP")

ALLOWED = {torch.float32: 1e-6, torch.bfloat16: 2**-8}
"""Rounding, relative to the terms' size."""


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("inputs", [1, 7, 37, 64, 100, 576])
@pytest.mark.parametrize("outputs", [1, 5, 33, 192])
@pytest.mark.parametrize("biased", [False, True])
def test_every_row_is_that_of_a_wider_product(
    dtype: torch.dtype, inputs: int, outputs: int, biased: bool
) -> None:
    weight = drawn(outputs, inputs, dtype=dtype)
    bias = drawn(outputs, dtype=dtype, seed=1) if biased else None
    x = drawn(19, inputs, dtype=dtype, seed=2)
    rows = RowsLinear(weight, bias)
    whole = rows(x)
    exact = linear(x.double(), weight.double(), None if bias is None else bias.double())
    size = linear(
        x.double().abs(), weight.double().abs(), None if bias is None else bias.double().abs()
    )
    assert whole.dtype is dtype
    assert ((whole.double() - exact).abs() <= ALLOWED[dtype] * size).all()
    for first, end in [(0, 1), *((0, n) for n in range(2, 19)), (3, 4), (5, 12)]:
        assert torch.equal(rows(x[first:end]), whole[first:end])


def test_the_number_of_threads_does_not_matter() -> None:
    rows, x = RowsLinear(drawn(101, 64), None), drawn(5, 64, seed=1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(rows(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_shapes_strides_and_special_numbers() -> None:
    weight = drawn(6, 32)
    rows = RowsLinear(weight, None)
    x = drawn(2, 3, 32, seed=1)
    assert rows(x).shape == (2, 3, 6)
    assert rows(x[0, 0]).shape == (6,)
    assert rows(x[:, :0]).shape == (2, 0, 6)
    assert torch.equal(rows(x.transpose(0, 1)), rows(x).transpose(0, 1))
    odd = torch.full((1, 32), torch.nan)
    assert rows(odd).isnan().all()
    for dtype in ALLOWED:
        infinite = RowsLinear(torch.full((3, 32), torch.inf, dtype=dtype), None)
        assert (infinite(torch.ones(1, 32, dtype=dtype)) == torch.inf).all()


def test_halves_are_rounded_to_even() -> None:
    # 1 + 2^-8 lies between two bfloat16, of which 1 is even; 1 + 3 * 2^-8 goes up.
    weight = torch.tensor([[1.0, 2**-8], [1.0, 3 * 2**-8]]).bfloat16()
    found = RowsLinear(weight, None)(torch.ones(1, 2, dtype=torch.bfloat16))
    assert found.tolist() == [[1.0, 1 + 2**-6]]


PASSED_ON: dict[str, Callable[[], Tensor]] = {
    "dtype": lambda: torch.ones(1, 4, dtype=torch.float64),
    "width": lambda: torch.ones(1, 5),
}


@pytest.mark.parametrize("kind", PASSED_ON)
def test_what_cannot_be_read_is_refused_by_pytorch(kind: str) -> None:
    with pytest.raises(RuntimeError):
        RowsLinear(torch.ones(3, 4), None)(PASSED_ON[kind]())
    with pytest.raises(RuntimeError):
        RowsLinear(torch.ones(3, 4), torch.ones(3).double())(torch.ones(1, 4))


def test_tensors_without_memory_to_read_see_pytorchs_linear() -> None:
    class Noted(Tensor):
        pass

    rows = RowsLinear(torch.ones(3, 4), None)
    assert type(rows(torch.ones(1, 4).as_subclass(Noted))) is Noted
    assert rows(torch.ones(1, 4, device="meta")).device.type == "meta"


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_a_trace_records_the_product() -> None:
    rows = RowsLinear(torch.ones(3, 4), None)

    def product(x: Tensor) -> Tensor:
        return rows(x)

    traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
        product, torch.ones(1, 4), check_trace=False
    )
    assert traced(torch.zeros(1, 4)).tolist() == [[0.0, 0.0, 0.0]]
