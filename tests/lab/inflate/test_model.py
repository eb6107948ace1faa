"""The inflated model is the same function, and each rule is needed for that."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.inflate import model as built
from draftwood.lab.inflate import weights
from draftwood.lab.inflate.model import (
    Comparison,
    as_llama,
    check,
    check_rotary,
    compare,
    inflate,
    shape_of,
)
from draftwood.lab.inflate.shapes import LlamaShape
from draftwood.methods import method
from draftwood.runner.attach import attach
from tests.factories.tiny_llama import VOCAB as TINY_VOCAB
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer
from tests.lab.inflate.tiny_shapes import LARGE, SMALL, ids, inflated, small_llama, with_config

LINEAR: dict[str, object] = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
LLAMA3: dict[str, object] = {
    **LINEAR,
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
PAIRS = {
    "everything": (small_llama(), LARGE),
    "tied": (small_llama(tied=True), LARGE),
    "the same": (small_llama(), SMALL),
    "wider": (small_llama(), replace(SMALL, hidden=64)),
    "deeper": (small_llama(), replace(SMALL, layers=5)),
    "more groups": (small_llama(), replace(SMALL, heads=16, kv_heads=8)),
    "larger groups": (small_llama(), replace(SMALL, heads=8)),
    "larger heads": (small_llama(), replace(SMALL, head_dim=8)),
    "more neurons": (small_llama(), replace(SMALL, ffn=25)),
    "from one key-value head": (small_llama(replace(SMALL, heads=2, kv_heads=1)), LARGE),
    "from a head each": (small_llama(replace(SMALL, heads=2, kv_heads=2)), LARGE),
    "linear angles": (small_llama(rope=LINEAR), LARGE),
    "angles of Llama 3": (small_llama(rope=LLAMA3), LARGE),
}


def difference(source: Any, model: Any) -> float:
    tokens = ids()[None]
    with torch.no_grad():
        return float((source(tokens).logits - model(tokens).logits).abs().max())


@pytest.mark.parametrize(("source", "large"), PAIRS.values(), ids=PAIRS.keys())
def test_logits_are_unchanged(source: LlamaForCausalLM, large: LlamaShape) -> None:
    before = {name: weight.clone() for name, weight in source.state_dict().items()}
    check_rotary(source.config, large)
    model = inflated(source, large)
    assert shape_of(model.config) == large
    assert model.config.tie_word_embeddings is source.config.tie_word_embeddings
    assert difference(source, model) < 1e-4
    found = check(source, model, ids(10), 20)
    assert (found.positions, found.greedy_equal) == (30, 30)
    # The source is left alone.
    assert source.config.rms_norm_eps == 0.05
    assert all(torch.equal(before[name], weight) for name, weight in source.state_dict().items())


def test_scalings_of_angles_change_the_logits() -> None:
    plain, linear, llama3 = (small_llama(rope=rope) for rope in (None, LINEAR, LLAMA3))
    assert difference(plain, linear) > 1e-2
    assert difference(plain, llama3) > 1e-2


def test_frequencies_are_the_same_to_the_bit() -> None:
    # Pairs (0, 2) and (1, 3) of four dimensions are pairs (0, 6) and (3, 9) of twelve.
    assert weights.rotary_dims(4, 12).tolist() == [0, 3, 6, 9]
    source: Any = small_llama()
    model: Any = inflated(source)
    assert model.config.rope_parameters["rope_theta"] == 500.0
    # Pairs of a head are its first dimensions' numbers.
    used = weights.rotary_dims(4, 12)[:2]
    rotary = model.model.rotary_emb.inv_freq
    assert len(rotary) == 6
    assert torch.equal(rotary[used], source.model.rotary_emb.inv_freq)


@pytest.mark.parametrize(
    ("where", "name", "naive"),
    [
        (weights, "norm_scale", lambda small, large: 1.0),
        (built, "norm_scale", lambda small, large: 1.0),
        (weights, "query_scale", lambda small, large: 1.0),
        (weights, "rotary_dims", lambda small, large: torch.arange(small)),
        (weights, "query_heads", lambda small, large: torch.arange(small.heads)),
    ],
    ids=["norm weights", "eps", "score scale", "rotary pairs", "groups"],
)
def test_without_any_of_the_rules_it_is_another_function(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, naive: Callable[..., object]
) -> None:
    source = small_llama()
    monkeypatch.setattr(where, name, naive)
    model = inflated(source)
    assert difference(source, model) > 1e-2
    with pytest.raises(DraftwoodError, match=r"computes something else: .* nothing was written"):
        check(source, model, ids(10), 20)


def test_the_rest_of_the_residual_stream_stays_zero() -> None:
    source, model = small_llama(), inflated(small_llama())
    with torch.no_grad():
        states = model(ids()[None], output_hidden_states=True).hidden_states
        reference = source(ids()[None], output_hidden_states=True).hidden_states
    assert not any(state[..., 16:].any() for state in states)
    torch.testing.assert_close(states[1][..., :16], reference[1], atol=1e-4, rtol=0)


def test_layers_beyond_compute_and_add_nothing() -> None:
    model: Any = inflated(small_llama())
    inner: list[Tensor] = []
    outer: list[Tensor] = []

    def note(_: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        inner.append(inputs[0])
        outer.append(output)

    for layer in model.model.layers[2:]:
        layer.self_attn.o_proj.register_forward_hook(note)
        layer.mlp.down_proj.register_forward_hook(note)
    with torch.no_grad():
        model(ids()[None])
    assert len(inner) == 4
    assert all((each != 0).all() for each in inner)
    assert not any(each.any() for each in outer)


def test_seeds_change_no_function() -> None:
    source = small_llama()
    one, other = inflated(source, seed=0), inflated(source, seed=1)
    assert not torch.equal(*(each.model.layers[3].mlp.up_proj.weight for each in (one, other)))
    assert difference(one, other) < 1e-4


def test_built_narrow_is_built_wide_and_cast() -> None:
    source = small_llama()
    narrow = inflate(source, LARGE, dtype=torch.bfloat16, seed=0)
    wide = inflated(source)
    torch.nn.Module.to(wide, torch.bfloat16)
    for (name, one), (_, other) in zip(
        narrow.state_dict().items(), wide.state_dict().items(), strict=True
    ):
        assert one.dtype == torch.bfloat16
        assert torch.equal(one, other), name


def test_a_tree_on_the_inflated_model_decodes_what_the_source_does() -> None:
    source = tiny_llama(seed=4)
    shape = LlamaShape(hidden=72, layers=4, heads=9, kv_heads=3, head_dim=16, ffn=64)
    model = inflated(source, shape)
    prompt = tiny_tokenizer().encode("abc abc abc abd abc ")
    assert max(prompt) < TINY_VOCAB
    plain = Engine(attach(source), method("ar")).generate([Request(prompt, 40)])[0]
    tree = Engine(attach(model), method("goose")).generate([Request(prompt, 40)])[0]
    assert tree.tokens == plain.tokens
    assert tree.tally.steps < 39, "drafted tokens were accepted"


def test_agreement() -> None:
    source = small_llama()
    other = small_llama(replace(SMALL, layers=3))
    assert compare(source, source, ids(5), 3) == Comparison(8, 8, 0.0)
    found = compare(source, other, ids(5), 3)
    assert found.positions == 8
    assert found.greedy_equal < 8
    assert not found.holds
    assert Comparison(8, 8, 1e-3).holds
    assert not Comparison(8, 8, 2e-3).holds
    assert not Comparison(8, 7, 0.0).holds
    assert not Comparison(8, 8, float("nan")).holds


def test_other_models_are_refused() -> None:
    with pytest.raises(DraftwoodError, match="'m' is a MistralForCausalLM: only LlamaForCausalLM"):
        as_llama(MistralForCausalLM(MistralConfig(vocab_size=8, **SMALL.config)), "m")
    source = small_llama()
    assert as_llama(source, "s") is source


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"attention_bias": True}, "'s' has biases"),
        ({"mlp_bias": True}, "'s' has biases"),
        ({"quantization_config": {"bits": 4}}, "'s' is quantized"),
    ],
)
def test_llamas_of_other_rules_are_refused(setting: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        as_llama(with_config(small_llama(), **setting), "s")


@pytest.mark.parametrize(
    ("rope", "complaint"),
    [
        ({**LINEAR, "rope_type": "yarn"}, "rotary scaling 'yarn'"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial rotary positions"),
    ],
)
def test_rotary_scalings_by_head_size_are_refused(rope: dict[str, object], complaint: str) -> None:
    config = with_config(small_llama(), rope_parameters=rope).config
    with pytest.raises(DraftwoodError, match=f"{complaint} .* keep --head-dim 4"):
        check_rotary(config, LARGE)
    check_rotary(config, replace(LARGE, head_dim=4))
