"""The attention kernel equals the textbook formula in float64, whatever the rows beside a row."""

import pytest
import torch
from torch import Tensor

from draftwood.kernels.compiled import _command
from draftwood.runner.attention import Varlen, Visibility
from draftwood.runner.cpu.attention import Sequences, attend

pytestmark = pytest.mark.skipif(_command() is None, reason="no C++ compiler")

ALLOWED = {torch.float32: 1.5e-6, torch.bfloat16: 1.5 * 2**-7}
"""In bfloat16, with AMX, the weights are rounded as well as the output."""


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def cached(b: int, heads: int, length: int, width: int, dtype: torch.dtype, seed: int) -> Tensor:
    """``[b, heads, length, width]`` as a cache has it: heads inside, what is behind is not read."""
    whole = drawn(b, length + 5, heads, width, dtype=dtype, seed=seed)
    whole[:, length:] = torch.nan
    return whole[:, :length].transpose(1, 2)


def tree_mask(b: int, group: int, queries: int, keys: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    mask = torch.zeros(b, 1, queries, keys)
    mask.masked_fill_(torch.rand(mask.shape, generator=generator) < 0.4, -torch.inf)
    mask[..., 0] = 0
    return mask.repeat(1, 1, group, 1).to(dtype)


def textbook(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    b, heads, q, d = query.shape
    packed = query.double().reshape(b, key.shape[1], -1, d)
    scores = packed @ key.double().transpose(2, 3) * d**-0.5
    weights = (scores if mask is None else scores + mask.double()).softmax(-1)
    found: Tensor = (weights @ value.double()).reshape(b, heads, q, d).transpose(1, 2)
    return found


SHAPES = [
    (1, 9, 3, 1, 400, 64),
    (1, 9, 3, 16, 401, 64),
    (2, 4, 4, 3, 7, 32),
    (1, 8, 1, 5, 130, 128),
    (3, 6, 2, 2, 257, 80),
    (1, 2, 1, 1, 1, 16),
    (1, 1, 1, 2, 129, 512),
    (1, 8, 1, 17, 300, 96),
]
"""Batch, heads, key heads, queries, keys, width."""


def test_a_mask_may_be_made_for_larger_groups() -> None:
    """Those of other layers; each reads the first rows."""
    query, key, value = (cached(2, heads, n, 16, torch.float32, i) for i, (heads, n) in enumerate(
        [(4, 3), (2, 20), (2, 20)]
    ))  # fmt: skip
    mask = tree_mask(2, 5, 3, 20, torch.float32)
    found = attend(query, key, value, mask, None)
    assert found is not None
    expected = textbook(query, key, value, mask[:, :, :6])
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    both = attend(query[:1], key[:1], value[:1], mask[:1], None, Sequences([0, 3], [20]))
    assert both is not None
    torch.testing.assert_close(both, found[:1])


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masked", [False, True])
def test_it_equals_the_textbook_formula(
    dtype: torch.dtype, shape: tuple[int, ...], masked: bool
) -> None:
    b, heads, kv_heads, q, kv, d = shape
    query = drawn(b, q, heads, d, dtype=dtype).transpose(1, 2)
    key, value = (cached(b, kv_heads, kv, d, dtype, seed) for seed in (1, 2))
    mask = tree_mask(b, heads // kv_heads, q, kv, dtype) if masked else None
    found = attend(query, key, value, mask, None)
    assert found is not None
    assert found.is_contiguous()
    expected = textbook(query, key, value, mask)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=ALLOWED[dtype])
    scaled = attend(query, key, value, mask, 2 * d**-0.5)
    assert scaled is not None
    torch.testing.assert_close(
        scaled.double(), textbook(2 * query, key, value, mask), rtol=0, atol=2 * ALLOWED[dtype]
    )


@pytest.mark.parametrize("width", [64, 80])
@pytest.mark.parametrize("dtype", ALLOWED)
def test_a_row_does_not_depend_on_the_others_nor_on_threads(dtype: torch.dtype, width: int) -> None:
    query = drawn(2, 13, 6, width, dtype=dtype).transpose(1, 2)
    key, value = (cached(2, 2, 150, width, dtype, seed) for seed in (1, 2))
    mask = tree_mask(2, 3, 13, 150, dtype)
    before, found = torch.get_num_threads(), list[Tensor]()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            given = attend(query, key, value, mask, None)
            assert given is not None
            found.append(given)
    finally:
        torch.set_num_threads(before)
    whole = found[0]
    assert torch.equal(whole, found[1])
    assert torch.equal(whole, found[2])
    for b in range(2):
        for n in range(13):
            one = mask.view(2, 1, 3, 13, 150)[b : b + 1, :, :, n]
            alone = attend(
                *(query[b : b + 1, :, n : n + 1], key[b : b + 1], value[b : b + 1], one, None)
            )
            assert alone is not None
            assert torch.equal(alone, whole[b : b + 1, n : n + 1])


@pytest.mark.parametrize("width", [64, 80])
@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("masked", [False, True])
def test_sequences_of_different_lengths_are_each_as_alone(
    dtype: torch.dtype, masked: bool, width: int
) -> None:
    counts, lengths, group = (3, 1, 7, 2), (150, 9, 260, 129), 3
    step = Varlen(Visibility.TREE, counts, lengths)
    query = drawn(1, sum(counts), 6, width, dtype=dtype).transpose(1, 2)
    key, value = (cached(4, 2, 260, width, dtype, seed) for seed in (1, 2))
    for i, length in enumerate(lengths):
        key[i, :, length:] = value[i, :, length:] = torch.nan
    # Further rows and columns say nothing, and must not be read.
    mask = torch.full((4, 1, group * 7, 260), torch.nan, dtype=dtype)
    own = [tree_mask(1, group, n, kv, dtype) for n, kv in zip(counts, lengths, strict=True)]
    for i, each in enumerate(own):
        mask[i, :, : each.shape[2], : each.shape[3]] = each[0]
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found = attend(query, key, value, mask if masked else None, None, step.sequences)
            assert found is not None
            assert found.shape == (1, sum(counts), 6, width)
            for i, (start, n, kv) in enumerate(zip(step.starts, counts, lengths, strict=False)):
                alone = attend(
                    query[:, :, start : start + n],
                    key[i : i + 1, :, :kv],
                    value[i : i + 1, :, :kv],
                    own[i] if masked else None,
                    None,
                )
                assert alone is not None
                assert torch.equal(alone, found[:, start : start + n])
    finally:
        torch.set_num_threads(before)


def test_a_sequence_without_queries_is_passed_over() -> None:
    counts, lengths = (2, 0, 1), (40, 30, 20)
    step = Varlen(Visibility.CAUSAL, counts, lengths)
    query = drawn(1, 3, 6, 64, dtype=torch.float32).transpose(1, 2)
    key, value = (cached(3, 2, 40, 64, torch.float32, seed) for seed in (1, 2))
    found = attend(query, key, value, None, None, step.sequences)
    others = Varlen(Visibility.CAUSAL, (2, 1), (40, 20))
    alone = attend(query, key[[0, 2]], value[[0, 2]], None, None, others.sequences)
    assert found is not None
    assert alone is not None
    assert torch.equal(found, alone)


def causal(group: int, q: int, kv: int, dtype: torch.dtype) -> Tensor:
    return (
        torch.full((q, kv), -torch.inf, dtype=dtype).triu(kv - q + 1).repeat(group, 1)[None, None]
    )


@pytest.mark.parametrize("width", [64, 80])
@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize(("q", "kv"), [(1, 5), (9, 9), (70, 300), (200, 200), (33, 1100)])
def test_queries_in_order_see_the_keys_up_to_their_own(
    dtype: torch.dtype, width: int, q: int, kv: int
) -> None:
    query = drawn(1, q, 6, width, dtype=dtype).transpose(1, 2)
    key, value = (cached(1, 2, kv, width, dtype, seed) for seed in (1, 2))
    masked = attend(query, key, value, causal(3, q, kv, dtype), None)
    assert masked is not None
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found = attend(query, key, value, None, None, in_order=True)
            assert found is not None
            assert torch.equal(found, masked)
    finally:
        torch.set_num_threads(before)
    both = [torch.cat([x, x]) for x in (query, key, value)]
    assert attend(both[0], both[1], both[2], None, None, in_order=True) is None


@pytest.mark.parametrize("dtype", ALLOWED)
def test_sequences_in_order_are_beside_masked_ones(dtype: torch.dtype) -> None:
    counts, lengths, group = (40, 1, 7, 90, 3), (150, 9, 260, 90, 129), 3
    in_order = (True, True, False, True, False)
    query = drawn(1, sum(counts), 6, 64, dtype=dtype).transpose(1, 2)
    key, value = (cached(5, 2, 260, 64, dtype, seed) for seed in (1, 2))
    mask = torch.full((5, 1, group * 7, 260), torch.nan, dtype=dtype)  # no rows of those in order
    own = [
        causal(group, n, kv, dtype) if ordered else tree_mask(1, group, n, kv, dtype)
        for n, kv, ordered in zip(counts, lengths, in_order, strict=True)
    ]
    for i in (2, 4):
        mask[i, :, : own[i].shape[2], : own[i].shape[3]] = own[i][0]
    step = Varlen(Visibility.TREE, counts, lengths, in_order=in_order)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found = attend(query, key, value, mask, None, step.sequences)
            assert found is not None
            for i, (start, n, kv) in enumerate(zip(step.starts, counts, lengths, strict=False)):
                alone = attend(
                    query[:, :, start : start + n],
                    key[i : i + 1, :, :kv],
                    value[i : i + 1, :, :kv],
                    own[i],
                    None,
                )
                assert alone is not None
                assert torch.equal(alone, found[:, start : start + n])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, 1e-4), (torch.bfloat16, 2**-6)])
def test_large_scores_and_rows_that_see_late_keys_only(dtype: torch.dtype, allowed: float) -> None:
    query, key, value = (drawn(1, 1, n, 32, dtype=dtype, seed=n % 2) for n in (2, 301, 300))
    key = key[:, :, 1:]
    mask = torch.zeros(1, 1, 2, 300, dtype=dtype)
    mask[..., 0, :290] = -torch.inf
    found = attend(query * 100, key, value, mask, None)
    assert found is not None
    expected = textbook(query * 100, key, value, mask)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=allowed)
    assert attend(query * torch.nan, key, value, None, None).isnan().all()  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("width", [64, 80])
@pytest.mark.parametrize("place", [0, 3, 127, 128, 199])
def test_a_key_that_is_not_a_number_is_not_hidden(
    dtype: torch.dtype, width: int, place: int
) -> None:
    query, key, value = (drawn(1, 1, n, width, dtype=dtype) for n in (1, 200, 200))
    key[:, :, place] = torch.nan
    found = attend(query, key, value, None, None)
    assert found is not None
    assert found.isnan().all()


def test_what_the_kernel_does_not_take_is_left_to_pytorch() -> None:
    x, half = torch.ones(1, 1, 2, 32), torch.ones(1, 1, 2, 32).half()
    narrow = torch.ones(1, 1, 2, 24)
    assert attend(x, x, x, None, None) is not None
    assert attend(half, half, half, None, None) is None
    assert attend(narrow, narrow, narrow, None, None) is None
    assert attend(x, x[..., :16], x, None, None) is None
    assert attend(x, x[..., :16], x[..., :16], None, None) is None
    assert attend(*3 * (torch.ones(2, 1, 2, 32),), torch.ones(1, 1, 2, 2), None) is None
    assert attend(x, x.bfloat16(), x.bfloat16(), None, None) is None
    assert attend(x, x, x, torch.ones(1, 1, 2, 2, dtype=torch.bool), None) is None
    assert attend(x, x[:, :, :0], x[:, :, :0], None, None) is None
    turned = torch.ones(1, 1, 32, 32).transpose(2, 3)
    assert attend(x, turned, turned, None, None) is None
