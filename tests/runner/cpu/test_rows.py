"""The compiled linear equals float64's, whatever the rows beside a row; what it passes on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwood.kernels.compiled import _command
from draftwood.runner.cpu.rows import RowsLinear

pytestmark = pytest.mark.skipif(_command() is None, reason="no C++ compiler")

ALLOWED = {torch.float32: 1e-6, torch.bfloat16: 2**-8}
"""Rounding, relative to the terms' size."""


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("inputs", [1, 7, 37, 64, 100, 576, 2050])
@pytest.mark.parametrize("outputs", [1, 5, 33, 192])
@pytest.mark.parametrize("biased", [False, True])
def test_every_row_is_that_of_a_wider_product(
    dtype: torch.dtype, inputs: int, outputs: int, biased: bool
) -> None:
    weight = drawn(outputs, inputs, dtype=dtype)
    bias = drawn(outputs, dtype=dtype, seed=1) if biased else None
    x = drawn(19, inputs, dtype=dtype, seed=2)
    product = RowsLinear(weight)
    whole = product(x, bias)
    exact = linear(x.double(), weight.double(), None if bias is None else bias.double())
    size = linear(
        x.double().abs(), weight.double().abs(), None if bias is None else bias.double().abs()
    )
    assert whole.dtype is dtype
    assert ((whole.double() - exact).abs() <= ALLOWED[dtype] * size).all()
    for first, end in [(0, 1), *((0, n) for n in range(2, 19)), (3, 4), (5, 12)]:
        assert torch.equal(product(x[first:end], bias), whole[first:end])


@pytest.mark.parametrize("dtype", ALLOWED)
def test_many_rows_are_multiplied_in_parts(dtype: torch.dtype) -> None:
    product, x = RowsLinear(drawn(33, 40, dtype=dtype)), drawn(300, 40, dtype=dtype, seed=1)
    alone = [product(row[None], None) for row in x]
    assert torch.equal(product(x, None), torch.cat(alone))


@pytest.mark.parametrize("rows", [31, 32, 33, 48, 49, 64])
def test_every_number_of_tiles_is_right(rows: int) -> None:
    """Of bfloat16, whole tiles of the weight and of the rows, and parts of them."""
    weight, x = drawn(80, 96, dtype=torch.bfloat16), drawn(rows, 96, dtype=torch.bfloat16, seed=1)
    product = RowsLinear(weight)
    alone = [product(row[None], None) for row in x]
    assert torch.equal(product(x, None), torch.cat(alone))


def test_pytorchs_own_products_are_right_beside_them() -> None:
    """It multiplies by tiles as well, of other shapes."""
    weight, x = (drawn(96, 96, dtype=torch.bfloat16, seed=seed) for seed in (0, 1))
    product, expected = RowsLinear(weight), linear(x, weight)
    for rows in (1, 17, 40):
        product(x[:rows], None)
        assert torch.equal(linear(x, weight), expected)


@pytest.mark.parametrize("dtype", ALLOWED)
def test_the_number_of_threads_does_not_matter(dtype: torch.dtype) -> None:
    product, x = RowsLinear(drawn(101, 64, dtype=dtype)), drawn(5, 64, dtype=dtype, seed=1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(product(x, None))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_shapes_strides_and_special_numbers() -> None:
    weight = drawn(6, 32)
    product = RowsLinear(weight)
    x = drawn(2, 3, 32, seed=1)
    assert product(x, None).shape == (2, 3, 6)
    assert product(x[0, 0], None).shape == (6,)
    assert product(x[:, :0], None).shape == (2, 0, 6)
    turned = product(x.transpose(0, 1), None)
    assert torch.equal(turned, product(x, None).transpose(0, 1))
    for dtype in ALLOWED:
        one = torch.ones(1, 32, dtype=dtype)
        for odd in (torch.inf, -torch.inf, torch.nan):
            found = RowsLinear(torch.full((3, 32), odd, dtype=dtype))(one, None)
            torch.testing.assert_close(found, torch.full_like(found, odd), equal_nan=True)


def test_halves_are_rounded_to_even() -> None:
    # 1 + 2^-8 lies between two bfloat16, of which 1 is even; 1 + 3 * 2^-8 goes up.
    weight = torch.tensor([[1.0, 2**-8], [1.0, 3 * 2**-8]]).bfloat16()
    found = RowsLinear(weight)(torch.ones(1, 2, dtype=torch.bfloat16), None)
    assert found.tolist() == [[1.0, 1 + 2**-6]]


PASSED_ON: dict[str, Callable[[], tuple[Tensor, Tensor | None]]] = {
    "dtype": lambda: (torch.ones(1, 4, dtype=torch.float64), None),
    "width": lambda: (torch.ones(1, 5), None),
    "dtype of the bias": lambda: (torch.ones(1, 4), torch.ones(3).double()),
    "length of the bias": lambda: (torch.ones(1, 4), torch.ones(2)),
    "device of the bias": lambda: (torch.ones(1, 4), torch.ones(3, device="meta")),
}


@pytest.mark.parametrize("kind", PASSED_ON)
def test_what_cannot_be_read_is_refused_by_pytorch(kind: str) -> None:
    with pytest.raises(RuntimeError):
        RowsLinear(torch.ones(3, 4))(*PASSED_ON[kind]())


def test_a_bias_that_pytorch_expands_is_expanded() -> None:
    found = RowsLinear(torch.ones(3, 4))(torch.ones(1, 4), torch.ones(1))
    assert found.tolist() == [[5.0, 5.0, 5.0]]


def test_tensors_without_memory_to_read_see_pytorchs_linear() -> None:
    class Noted(Tensor):
        pass

    product = RowsLinear(torch.ones(3, 4))
    assert type(product(torch.ones(1, 4).as_subclass(Noted), None)) is Noted
    assert product(torch.ones(1, 4, device="meta"), None).device.type == "meta"


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_a_trace_records_the_product() -> None:
    product = RowsLinear(torch.ones(3, 4))

    def linear(x: Tensor) -> Tensor:
        return product(x, None)

    traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
        linear, torch.ones(1, 4), check_trace=False
    )
    assert traced(torch.zeros(1, 4)).tolist() == [[0.0, 0.0, 0.0]]
