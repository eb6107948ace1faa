"""Cache shapes found by a two-token forward."""

from typing import Any

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.runner.attention import register
from draftwood.runner.masks import layer_kinds
from draftwood.runner.probe import CacheLayout, probe_cache
from tests.factories.model_families import FAMILIES

CPU = torch.device("cpu")


def learn(model: Any, layers: int | None = None) -> CacheLayout:
    kinds = layer_kinds(model.config)
    model.set_attn_implementation(register(model.config._attn_implementation))
    return probe_cache(model, kinds, layers or model.config.num_hidden_layers, CPU)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "deepseek_v3"])
def test_latent_attention_caches_other_shapes_than_it_attends_to(family: str) -> None:
    latent = family == "deepseek_v3"
    assert learn(FAMILIES[family]()).attended_as_cached is not latent


def test_layers_that_cache_nothing_are_refused() -> None:
    with pytest.raises(DraftwoodError, match="in 2 of its 3 layers"):
        learn(FAMILIES["llama"](), layers=3)


def test_a_model_that_needs_other_cache_methods_is_refused() -> None:
    model = FAMILIES["llama"]()

    def forward(*args: Any, past_key_values: Any, **kwargs: Any) -> Any:
        return past_key_values.layers[0].conv_states

    model.model.forward = forward
    with pytest.raises(DraftwoodError, match="does not run on a cache of keys and values"):
        learn(model)
