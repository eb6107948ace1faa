"""A fingerprint is that of the weights: casts and layouts match, other weights do not."""

import dataclasses
import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PythonBackend

from draftwood.engine.host import ModelHost
from draftwood.files import decode, encode
from draftwood.models import fingerprint_of, vocabulary_digest
from draftwood.protocols import Fingerprint
from draftwood.runner.attach import attach
from tests.factories.markov_target import MarkovTarget
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PAIRS = list(product(DTYPES, DTYPES))


def of(model: nn.Module) -> Fingerprint:
    found = fingerprint_of(model)
    assert found is not None
    return found


def cast(dtype: torch.dtype, noise: float = 0.0) -> Fingerprint:
    """Of a tiny model, whose weights were moved by this relative noise before the cast."""
    model = tiny_llama()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.0 + noise * torch.randn_like(weight))
    return of(nn.Module.to(model, dtype))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_casts_of_the_same_weights_match(first: torch.dtype, second: torch.dtype) -> None:
    assert cast(first).matches(cast(second))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_weights_that_were_trained_further_do_not_match(
    first: torch.dtype, second: torch.dtype
) -> None:
    assert not cast(first).matches(cast(second, noise=3e-3))


def test_full_precision_tells_the_smallest_change() -> None:
    assert not cast(torch.float32).matches(cast(torch.float32, noise=1e-5))


def test_a_cast_of_a_cast_matches_the_original() -> None:
    once = nn.Module.to(tiny_llama(), torch.float16)
    assert of(nn.Module.to(once, torch.bfloat16)).matches(cast(torch.float32))


def test_the_architecture_counts() -> None:
    assert not of(tiny_llama()).matches(of(tiny_llama(layers=3)))
    assert not of(tiny_llama()).matches(of(tiny_llama(seed=1)))


@pytest.mark.parametrize(("noise", "near"), [(0.0, True), (0.1, True), (0.2, True), (0.4, False)])
def test_near_weights(noise: float, near: bool) -> None:
    model, other = cast(torch.float32), cast(torch.bfloat16, noise)
    assert model.is_near(other) is near
    assert not model.is_near(of(tiny_llama(seed=1)))
    assert not model.is_near(of(tiny_llama(layers=3)))


def test_weights_of_zero_are_near_nothing() -> None:
    empty = dataclasses.replace(cast(torch.float32), values=(0.0,) * 8)
    assert not empty.is_near(empty)


def test_the_files_of_a_checkpoint_do_not_count(tmp_path: Path) -> None:
    model = tiny_llama()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert of(loaded) == of(model)


def test_a_tied_output_matrix_that_is_stored_twice_does_not_count() -> None:
    tied = tiny_llama(tie_word_embeddings=True)
    apart = tiny_llama(tie_word_embeddings=False)
    apart.load_state_dict(tied.state_dict())
    assert apart.lm_head.weight is not apart.model.embed_tokens.weight
    assert of(apart) == of(tied)


def test_attaching_reads_the_weights_before_it_packs_them() -> None:
    model = tiny_llama(hidden_size=256, intermediate_size=512)
    before = of(model)
    assert attach(model, self_test=False).info.fingerprint == before
    assert of(model) == before, "packed weights can be read as well"


class Wrapped(torch.Tensor):
    """A tensor of a class of its own, as quantised weights are."""


@pytest.mark.parametrize(
    "weight",
    [torch.zeros(4, 4, dtype=torch.int8), torch.zeros(4, 4).as_subclass(Wrapped)],
    ids=["integers", "a class of its own"],
)
def test_quantised_weights_are_unknown(weight: torch.Tensor) -> None:
    model = tiny_llama()
    projection = model.model.layers[0].self_attn.q_proj
    projection.weight = nn.Parameter(weight, requires_grad=False)
    assert fingerprint_of(model) is None


def test_weights_in_buffers_are_unknown() -> None:
    """As GPTQ and torch's own quantisation keep them."""
    model = tiny_llama()
    for module in model.model.layers.modules():
        if isinstance(module, nn.Linear):
            del module.weight
            module.register_buffer("qweight", torch.zeros(4, 4, dtype=torch.int32))
    assert fingerprint_of(model) is None


def test_a_file_holds_it() -> None:
    found = of(tiny_llama())
    assert decode(Fingerprint, json.loads(json.dumps(encode(found)))) == found
    assert len(found.values) <= 256


def test_a_digest_of_a_vocabulary_ignores_the_order_and_the_kind_of_tokenizer() -> None:
    fast = tiny_tokenizer()
    vocabulary = fast.get_vocab()
    backwards = dict(reversed(vocabulary.items()))
    assert vocabulary_digest(Slow(backwards)) == vocabulary_digest(fast)
    a, b = list(vocabulary)[:2]
    swapped = vocabulary | {a: vocabulary[b], b: vocabulary[a]}
    assert vocabulary_digest(Slow(swapped)) != vocabulary_digest(fast)


def test_a_host_knows_the_vocabulary_if_it_has_the_tokenizer() -> None:
    tokenizer, target = tiny_tokenizer(), MarkovTarget(vocab_size=13)
    assert ModelHost(target, tokenizer).vocabulary == vocabulary_digest(tokenizer)
    assert ModelHost(target).vocabulary == ""


class Slow(PythonBackend):
    """A tokenizer in Python with a given vocabulary."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = dict(vocabulary)
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary)

    def get_vocab(self) -> dict[str, int]:
        return self._vocabulary
