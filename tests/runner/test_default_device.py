"""A default device that is not the model's, such as ``torch.set_default_device`` sets."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.copies import Staging, uploaded
from draftwood.integrations.transformers import generate
from draftwood.runner import to_host as searches
from draftwood.runner.attach import attach
from draftwood.runner.attention import register
from draftwood.runner.attention_check import check_attention
from draftwood.runner.gpu_layers import fuse_gpu_layers
from draftwood.runner.norm_formulas import norm_of
from draftwood.runner.to_host import to_host
from tests.factories.interpreted_attention import interpreted_attention
from tests.factories.model_families import FAMILIES
from tests.factories.path_logits import greedy_tokens

CPU = torch.device("cpu")


@pytest.fixture
def elsewhere() -> Iterator[torch.device]:
    """A device of tensors without numbers, which stands for a GPU; not the default by itself."""
    yield torch.device("meta")
    torch.set_default_device(None)


@pytest.mark.parametrize("family", ["llama", "mistral_sliding", "gpt_oss"])
def test_a_model_is_attached_and_generates(family: str, elsewhere: torch.device) -> None:
    model, ids = FAMILIES[family](), torch.tensor([[5, 17, 44, 5, 17, 30]])
    expected = greedy_tokens(model, ids, 12)
    given: Any = {"attention_mask": torch.ones_like(ids), "eos_token_id": None, "pad_token_id": 0}
    torch.set_default_device(elsewhere)
    attach(model)
    found: Any = generate(model, ids, max_new_tokens=12, do_sample=False, **given)
    assert found.tolist() == [expected]


@pytest.mark.parametrize("longest", [0, 1 << 15])
def test_rows_are_searched(
    longest: int, elsewhere: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "top_of_rows", lambda *_: None)
    monkeypatch.setattr(searches, "_LONG", longest)
    logits = torch.randn(1, 3, 2048)
    expected = to_host(logits, 4)
    torch.set_default_device(elsewhere)
    for found, wanted in zip(to_host(logits, 4), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_kernels_of_a_gpu_are_compared(elsewhere: torch.device) -> None:
    attend, model = interpreted_attention(), FAMILIES["llama"]()
    model.set_attn_implementation(register("sdpa"))
    torch.set_default_device(elsewhere)
    assert norm_of(model.model.norm) is not None
    assert len(fuse_gpu_layers(model, attend, torch.float32, CPU)) == 2
    check_attention(attend, CPU, torch.float32, 2, 1, 16, 24)


def test_numbers_are_uploaded(elsewhere: torch.device) -> None:
    torch.set_default_device(elsewhere)
    staging = Staging(CPU)
    staging.begin(2)[:] = (3, 4)
    assert staging.send((2,))[0].tolist() == [3, 4]
    assert uploaded([np.arange(3)], CPU)[0].tolist() == [0, 1, 2]
