"""Models that are loaded with int8 weights."""

import sys

import pytest
import torch

from draftwood import models
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.llamacpp import gguf
from draftwood.models.quantising import is_quantised, quantise_int8
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from tests.factories.hybrid_families import HYBRIDS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_model_is_loaded_with_int8_linears(checkpoint: str) -> None:
    pytest.importorskip("torchao.quantization")
    plain = models.load(checkpoint, dtype="float32").model
    quantised = models.load(checkpoint, dtype="int8").model
    assert not is_quantised(plain)
    assert is_quantised(quantised)
    ids = torch.arange(9)[None]
    with torch.no_grad():
        one, other = (model(ids).logits.float() for model in (plain, quantised))
    error = float((one - other).norm() / one.norm())
    assert 0 < error < 0.1
    with pytest.raises(DraftwoodError, match="quantised by torchao: give the peer weights=q8_0"):
        gguf.check(quantised)


def test_without_torchao_there_is_advice(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(DraftwoodError, match=r"pip install 'draftwood\[int8\]'"):
        models.load(checkpoint, dtype="int8")
    with pytest.raises(DraftwoodError, match=r"pip install 'draftwood\[int8\]'"):
        models.load("/nowhere/at-all", dtype="int8")  # which is not looked for


@pytest.mark.skipif("jamba" not in HYBRIDS, reason="not in this version of transformers")
def test_weights_that_a_layer_multiplies_itself_are_left() -> None:
    pytest.importorskip("torchao")
    model = HYBRIDS["jamba"]()
    quantise_int8(model)
    assert is_quantised(model)
    with torch.no_grad():
        wanted = model(torch.tensor([[1, 2, 3]])).logits
    runner = attach(model)
    slot = runner.open(8)
    [found] = runner.prefill([slot], [[1, 2, 3]], Needs())
    assert torch.allclose(found.logits[-1], wanted[0, -1], atol=1e-3)
    runner.detach()
