"""Rules and commits are computed in float32, also where shorter products were asked for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from draftwood import Engine, Request, method
from draftwood.runner.attach import attach
from draftwood.runner.recurrent import gated_delta, mamba2
from draftwood.runner.recurrent.exact_products import _settings, exact_products
from tests.factories.hybrid_families import HYBRIDS, known

GPU, _ = SETTINGS = _settings()


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    before = [each.fp32_precision for each in SETTINGS]
    yield
    for each, value in zip(SETTINGS, before, strict=True):
        each.fp32_precision = value


def precisions() -> list[str]:
    return [each.fp32_precision for each in SETTINGS]


@pytest.mark.parametrize("value", ["ieee", "none", "tf32"])
def test_the_setting_is_given_back(value: str) -> None:
    for each in SETTINGS:
        each.fp32_precision = value
    before = precisions()
    with exact_products():
        assert set(precisions()) <= {"ieee", "none"}
    assert precisions() == before


def test_it_is_given_back_after_an_error() -> None:
    GPU.fp32_precision = "tf32"
    with pytest.raises(ZeroDivisionError), exact_products():
        raise ZeroDivisionError
    assert GPU.fp32_precision == "tf32"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_older_setting_stays_readable() -> None:
    """torch refuses to read it where the newer one says something else."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with exact_products():
            assert GPU.fp32_precision == "ieee"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_more_general_setting_goes_on_to_decide() -> None:
    general: Any = torch.backends
    before = general.fp32_precision
    for each in SETTINGS:
        each.fp32_precision = "none"
    with ExitStack() as undo:
        undo.callback(setattr, general, "fp32_precision", before)
        general.fp32_precision = "tf32"
        assert precisions() == ["tf32", "tf32"]
        with exact_products():
            assert precisions() == ["ieee", "ieee"]
        assert precisions() == ["tf32", "tf32"]
        general.fp32_precision = "ieee"
        assert "tf32" not in precisions()


@pytest.mark.parametrize("name", known("qwen3_5_text", "granitemoehybrid", "jamba"))
def test_rules_and_commits_are_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the setting while they compute: a CPU may have no shorter products."""
    seen: list[str] = []

    def noting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            seen.append(GPU.fp32_precision)
            return plain(*given, **named)

        return noted

    of_mamba1: Any = (torch, "einsum")
    others: Any = (
        (gated_delta, "log_decays"),
        (gated_delta, "picked"),
        (mamba2, "log_decays"),
    )
    for where, inner in (of_mamba1,) if name == "jamba" else others:
        monkeypatch.setattr(where, inner, noting(getattr(where, inner)))
    runner = attach(HYBRIDS[name](), self_test=False)
    GPU.fp32_precision = "tf32"
    seen.clear()
    drafts = method("sd:budget=4", draft=HYBRIDS[name]())
    Engine(runner, drafts).generate([Request([5, 9, 13, 7, 5, 9], 6, eos=())])
    assert set(seen) == {"ieee"}
    assert GPU.fp32_precision == "tf32"
    runner.detach()
