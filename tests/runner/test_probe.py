"""Cache shapes found by a two-token forward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.runner.attention import register
from draftwood.runner.masks import layer_kinds
from draftwood.runner.probe import CacheLayout, probe_cache
from tests.factories.model_families import FAMILIES, gemma3n

CPU = torch.device("cpu")


def learn(model: Any, layers: int | None = None) -> CacheLayout:
    kinds = layer_kinds(model.config)
    model.set_attn_implementation(register(model.config._attn_implementation))
    return probe_cache(model, kinds, layers or model.config.num_hidden_layers, CPU)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "deepseek_v3"])
def test_latent_attention_caches_other_shapes_than_it_attends_to(family: str) -> None:
    latent = family == "deepseek_v3"
    assert learn(FAMILIES[family]()).attended_as_cached is not latent


@pytest.mark.parametrize(("family", "drops"), [("llama", False), ("stablelm", True)])
def test_layers_that_drop_the_step_are_found(family: str, drops: bool) -> None:
    assert learn(FAMILIES[family]()).drops_step is drops


@pytest.mark.parametrize("made", [gemma3n, FAMILIES["gemma4"]])
def test_layers_that_read_the_keys_of_others_store_none(made: Callable[[], Any]) -> None:
    layout = learn(made())
    assert layout.layers[3:] == (1, 2, 1)  # the last ones of their kinds before
    stored = [pair for pair in layout.layers if isinstance(pair, tuple)]
    sizes = [(keys.heads * keys.width, values.heads * values.width) for keys, values in stored]
    assert sizes == [(16, 16)] * 3
    assert layout.token_bytes == 4 * 3 * 32  # float32
    assert layout.attended_as_cached


def test_a_layer_that_reads_other_keys_than_those_in_the_cache_is_refused() -> None:
    model = FAMILIES["gemma4"]()
    attention = model.model.layers[5].self_attn
    forward = attention.forward

    def copied(*args: Any, shared_kv_states: Any, **kwargs: Any) -> Any:
        own = {kind: tuple(x.clone() for x in pair) for kind, pair in shared_kv_states.items()}
        return forward(*args, shared_kv_states=own, **kwargs)

    attention.forward = copied
    with pytest.raises(DraftwoodError, match="in 3 of its 6 layers"):
        learn(model)


def test_groups_of_heads_may_differ_from_layer_to_layer() -> None:
    layout = learn(FAMILIES["gemma4"]())
    assert layout.attended == {(2, 2, 8, 8), (4, 1, 16, 16)}
    assert layout.group == 4


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
