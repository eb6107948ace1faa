"""The kernel and the two-stage search find what torch finds, on every shape and kind of row."""

import numpy as np
import pytest
import torch

from draftwood.kernels.functions import kernels
from draftwood.runner import to_host as module
from draftwood.runner.cpu.top import top_of_rows
from draftwood.runner.to_host import to_host
from tests.simulated_cuda import SimulatedCuda


@pytest.fixture(params=["kernel", "few", "many", "long"], autouse=True)
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small inputs go through every search."""
    if request.param == "kernel":
        if kernels() is None:
            pytest.skip("no compiler")
        return
    monkeypatch.setattr(module, "top_of_rows", lambda *_: None)
    if request.param == "many":
        monkeypatch.setattr(module, "_FEW_LOGITS", 0)
    if request.param == "long":
        monkeypatch.setattr(module, "_LONG", 0)


def rows(n: int, vocab: int, scale: float = 4.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n * vocab)
    return torch.randn(1, n, vocab, generator=generator, dtype=torch.float64).mul(scale).float()


@pytest.mark.parametrize("vocab", [5, 96, 260, 4096, 4100, 32001])
@pytest.mark.parametrize("n", [1, 4, 5, 33])
@pytest.mark.parametrize("k", [1, 8, 300])
def test_both_searches_agree(vocab: int, n: int, k: int) -> None:
    logits = rows(n, vocab)
    argmax, tokens, probs = to_host(logits, k)
    expected, plain_tokens, plain_probs = to_host(logits, k, plain=True)
    assert argmax.tolist() == expected.tolist() == logits.argmax(-1).tolist()
    assert tokens.shape == probs.shape == (1, n, min(k, vocab))
    values = np.take_along_axis(logits.numpy(), tokens, axis=2)
    assert values.tolist() == np.take_along_axis(logits.numpy(), plain_tokens, axis=2).tolist()
    np.testing.assert_allclose(probs, plain_probs, rtol=2e-5, atol=1e-7)
    assert [str(x.dtype) for x in (argmax, tokens, probs)] == ["int64", "int64", "float32"]
    assert all(len(set(row)) == len(row) for row in tokens[0].tolist())


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e4])
def test_probabilities_of_extreme_logits(scale: float) -> None:
    logits = rows(12, 1024, scale)
    probs = to_host(logits, 6)[2]
    expected = logits.double().softmax(-1).topk(6).values.numpy()
    np.testing.assert_allclose(probs, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("k", [0, 1, 4])
def test_the_first_of_equal_maxima_is_the_argmax(k: int) -> None:
    logits = torch.zeros(1, 9, 2048)
    logits[0, :, 700] = logits[0, :, 30] = 5.0
    logits[0, 3] = 0.0
    logits[0, 4, 2000] = logits[0, 4, 1] = 7.0
    logits[0, 5, 0], logits[0, 5, 9] = -0.0, 0.0
    logits[0, 5, 30] = logits[0, 5, 700] = -1.0
    argmax, tokens, _ = to_host(logits, k)
    assert argmax.tolist() == logits.argmax(-1).tolist()
    if k == 4:
        assert {*tokens[0, 0, :2].tolist()} == {30, 700}
        assert {*tokens[0, 4, :2].tolist()} == {1, 2000}


def test_rows_with_minus_infinity() -> None:
    logits = torch.full((1, 7, 4096), -torch.inf)
    logits[0, :, 17] = 1.0
    argmax, tokens, probs = to_host(logits, 5)
    assert argmax.tolist() == [[17] * 7]
    assert tokens[0, :, 0].tolist() == [17] * 7
    np.testing.assert_allclose(probs[0, 0], [1, 0, 0, 0, 0], atol=1e-6)


@pytest.mark.parametrize("k", [0, 4])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("vocab", [2048, 40_000])
def test_a_row_with_nan_has_no_argmax(vocab: int, plain: bool, k: int) -> None:
    logits = rows(8, vocab)
    expected = logits.argmax(-1)
    logits[0, 3, 99] = torch.nan
    expected[0, 3] = -1
    assert to_host(logits, k, plain=plain)[0].tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("vocab", [4096, 4100])
def test_other_dtypes(dtype: torch.dtype, vocab: int) -> None:
    logits = rows(16, vocab).to(dtype)
    argmax, tokens, probs = to_host(logits, 3)
    assert argmax.tolist() == logits.argmax(-1).tolist()
    expected = logits.float().softmax(-1).topk(3).values.numpy()
    np.testing.assert_allclose(probs, expected, rtol=2e-5)
    # Half precision has ties, among which the order is not defined.
    values = np.take_along_axis(logits.float().numpy(), tokens, axis=2)
    assert values.tolist() == logits.float().topk(3).values.tolist()


def test_a_batch_keeps_its_shape() -> None:
    logits = rows(12, 4096).reshape(3, 4, 4096)
    argmax, tokens, probs = to_host(logits, 2)
    assert (argmax.shape, tokens.shape, probs.shape) == ((3, 4), (3, 4, 2), (3, 4, 2))
    assert argmax.tolist() == logits.argmax(-1).tolist()
    nothing = to_host(logits, 0)
    assert (nothing[1].shape, nothing[2].shape) == ((3, 4, 0), (3, 4, 0))


@pytest.mark.parametrize("vocab", [300, 4100, 50_000])
def test_a_row_does_not_depend_on_the_others(vocab: int) -> None:
    logits = rows(9, vocab)
    logits[0, 4] += 100.0  # exponentials of this one overflow unless it is shifted
    together = to_host(logits, 5)
    for i in range(9):
        alone = to_host(logits[:, i : i + 1], 5)
        assert [x[:, i : i + 1].tolist() for x in together] == [x.tolist() for x in alone]
    expected = logits.double().softmax(-1).topk(5).values.numpy()
    np.testing.assert_allclose(together[2], expected, rtol=2e-5)


def test_rows_of_a_wider_tensor() -> None:
    logits = rows(12, 4200)
    cut = logits[:, :, 50:4150]
    found, expected = to_host(cut, 7), to_host(cut.contiguous(), 7)
    assert [x.tolist() for x in found] == [x.tolist() for x in expected]


def test_the_two_stage_search_puts_the_lowest_of_equal_tokens_first() -> None:
    logits = rows(6, 4100).mul(8).round()  # a handful of values, ties everywhere
    found = module._two_stages(logits[0], module._chunks(logits[0]).amax(2), 6)
    assert found is not None
    order = np.argsort(-logits[0].numpy(), axis=1, kind="stable")
    assert found[1].tolist() == order[:, :6].tolist()
    assert found[0].tolist() == order[:, 0].tolist()


def test_rows_that_two_stages_cannot_search() -> None:
    for logits in (torch.zeros(2, 4096), rows(2, 4096)[0].fill_diagonal_(torch.nan)):
        assert module._two_stages(logits, module._chunks(logits).amax(2), 4) is None
    logits = rows(2, 4096)[0]
    assert module._two_stages(logits, module._chunks(logits).amax(2), 65) is None


@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_device_is_waited_for_once(k: int) -> None:
    logits = torch.randn(2, 3, 90, generator=torch.Generator().manual_seed(k))
    logits[0, 1, 5] = torch.nan
    expected = to_host(logits, k, plain=True)
    with SimulatedCuda() as device:
        there = logits.to("cuda")
        device.work.clear()
        found = to_host(there, k)
        assert (device.work.downloads.total(), device.work.waits.total()) == (1, 1)
        assert not device.work.faults
    assert [str(x.dtype) for x in found] == ["int64", "int64", "float32"]
    assert found[0].tolist() == expected[0].tolist()
    assert found[1].tolist() == expected[1].tolist()
    assert np.array_equal(found[2], expected[2], equal_nan=True)


def test_what_the_kernel_does_not_take() -> None:
    if kernels() is None:
        pytest.skip("no compiler")
    logits = rows(3, 512)[0]
    assert top_of_rows(logits, 4) is not None
    for wrong in (torch.nan, torch.inf):
        spoilt = logits.clone()
        spoilt[1, 7] = wrong
        assert top_of_rows(spoilt, 4) is None
    assert top_of_rows(torch.full((1, 64), -torch.inf), 4) is None
    assert top_of_rows(logits.double(), 4) is None


def test_the_kernel_puts_the_lowest_of_equal_tokens_first() -> None:
    if kernels() is None:
        pytest.skip("no compiler")
    logits = rows(6, 4100)[0].mul(8).round()
    found = top_of_rows(logits, 6)
    assert found is not None
    order = np.argsort(-logits.numpy(), axis=1, kind="stable")
    assert found[1].tolist() == order[:, :6].tolist()
    assert found[0].tolist() == order[:, 0].tolist()
