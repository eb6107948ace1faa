"""Shapes: what a Llama can have, what fits into what, and how many weights that makes."""

from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftwood.errors import DraftwoodError
from draftwood.lab.inflate.model import shape_of
from draftwood.lab.inflate.shapes import PRESETS, LlamaShape, check_fits, preset
from tests.lab.inflate.tiny_shapes import LARGE, SMALL, small_llama


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_parameters_are_what_a_model_has(shape: LlamaShape, tied: bool) -> None:
    assert shape.parameters(50, tied=tied) == small_llama(shape, tied=tied).num_parameters()


@pytest.mark.parametrize(
    ("name", "published", "vocabulary", "tied"),
    [
        ("1b", 1_235_814_400, 128_256, True),
        ("3b", 3_212_749_824, 128_256, True),
        ("8b", 8_030_261_248, 128_256, False),
    ],
)
def test_presets_are_the_published_models(
    name: str, published: int, vocabulary: int, tied: bool
) -> None:
    assert preset(name).parameters(vocabulary, tied=tied) == published


def test_half_a_billion_is_qwen_without_the_norms_of_queries_and_keys() -> None:
    shape = preset("0.5B")
    norms = shape.layers * 2 * shape.head_dim
    assert shape.parameters(151_936, tied=True) + norms == 596_049_920


@pytest.mark.parametrize("name", PRESETS)
def test_presets_hold_the_embedded_target_and_a_model_of_their_name(name: str) -> None:
    shape = preset(name)
    check_fits(LlamaShape(hidden=256, layers=8, heads=4, kv_heads=2, head_dim=64, ffn=576), shape)
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(vocab_size=4096, **shape.config))
    count = model.num_parameters()
    assert count == shape.parameters(4096, tied=False)
    assert shape_of(model.config) == shape
    small = count - 4096 * shape.hidden
    assert small == pytest.approx(float(name.partition("b")[0]) * 1e9, rel=0.13)


def test_a_shape_of_a_billion_weights_holds_smollm2() -> None:
    smollm2 = LlamaShape(hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64, ffn=1536)
    for name in ("1b-deep", "8b"):
        check_fits(smollm2, preset(name))
    with pytest.raises(DraftwoodError, match="--layers 16 is less than the model's 30"):
        check_fits(smollm2, preset("1b"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ffn": 0}, "--ffn is 0: give at least 1"),
        ({"kv_heads": -1}, "--kv-heads is -1"),
        ({"kv_heads": 2}, "9 heads cannot share 2 key-value heads evenly"),
        ({"hidden": 37}, "--hidden 37 is not a multiple of --heads 9"),
        ({"head_dim": 7}, "--head-dim is 7"),
    ],
)
def test_impossible_shapes(change: dict[str, int], complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        replace(LARGE, **change)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden": 9}, "--hidden 9 is less than the model's 16"),
        ({"layers": 1}, "--layers 1 is less than the model's 2"),
        ({"heads": 3}, "--heads 3 is less than the model's 4"),
        ({"kv_heads": 1}, "--kv-heads 1 is less than the model's 2"),
        ({"head_dim": 2}, "--head-dim 2 is less than the model's 4"),
        ({"ffn": 23}, "--ffn 23 is less than the model's 24"),
        ({"head_dim": 10}, "--head-dim 10 is not a multiple of the model's 4"),
        ({"kv_heads": 9}, "--heads 9 over --kv-heads 9 lets 1 query heads share .* the model 2"),
    ],
)
def test_shapes_that_do_not_fit(change: dict[str, int], complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        check_fits(SMALL, replace(LARGE, **change))


def test_a_head_is_called_one() -> None:
    with pytest.raises(DraftwoodError, match="--ffn 23 is less than the head's 24: a head can"):
        check_fits(SMALL, replace(LARGE, ffn=23), "head")


def test_unknown_preset() -> None:
    with pytest.raises(DraftwoodError, match=r"no shape is called '7b': choose 0\.25b, .*8b"):
        preset("7b")
