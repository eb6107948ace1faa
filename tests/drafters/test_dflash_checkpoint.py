"""Checkpoints of DFlash drafters: layouts, parts of their own, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from draftwood.drafters.dflash.checkpoint import load_dflash
from draftwood.drafters.dflash.config import DFlashConfig, read_config
from draftwood.drafters.dflash.drafter import DFlash
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.protocols import TargetInfo
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from tests.factories.dflash_drafters import random_tensors, raw_config, saved
from tests.factories.tiny_llama import VOCAB, tiny_llama

INFO = TargetInfo(VOCAB, 256, 8, 32, torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=4), self_test=False)


def config(**changes: Any) -> DFlashConfig:
    return read_config(raw_config(**changes), INFO)


def speculators(**changes: Any) -> dict[str, Any]:
    raw = raw_config()
    inner = {
        name: each for name, each in raw.items() if name not in ("dflash_config", "block_size")
    }
    return {
        "architectures": ["DFlashDraftModel"],
        "speculators_model_type": "dflash",
        "transformer_layer_config": inner,
        "mask_token_id": 7,
        "aux_hidden_state_layer_ids": [1, 3],
        **changes,
    }


def test_ids_of_z_lab_are_outputs_and_those_of_speculators_inputs() -> None:
    assert config(ids=(1, 4)).taps == (2, 5)
    assert read_config(speculators(), INFO).taps == (1, 3)
    without = speculators()
    del without["aux_hidden_state_layer_ids"]
    assert read_config(without, INFO).taps == (2, 4, 5)


def test_default_layers_are_spread() -> None:
    raw = raw_config(layers=5)
    del raw["dflash_config"]["target_layer_ids"]
    assert read_config(raw, INFO).taps == (2, 3, 4, 5, 6)
    raw = raw_config(layers=1)
    del raw["dflash_config"]["target_layer_ids"]
    assert read_config(raw, INFO).taps == (5,)


def test_blocks() -> None:
    assert (config().block_size, config().drafted) == (5, 4)
    inner = config(dflash={"block_size": 8})
    assert inner.drafted == 7
    assert read_config(speculators(), INFO).block_size == 8
    assert read_config(speculators(sample_from_anchor=True), INFO).drafted == 8


def test_windows_and_causality() -> None:
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
    assert (config().windows, config().causal) == ((None, None), (False, False))
    found = config(**kinds)
    assert (found.windows, found.causal) == ((6, None), (True, False))
    assert config(**kinds, is_causal=False).causal == (False, False)
    assert config(**kinds, dflash={"causal": False}).causal == (False, False)
    assert config(is_causal=True).causal == config(dflash={"causal": True}).causal == (True, True)
    assert config(is_causal=False, dflash={"causal": True}).causal == (False, False)
    everywhere = config(dflash={"use_swa": True, "swa_window_size": 3})
    assert (everywhere.windows, everywhere.causal) == ((3, 3), (False, False))
    spec = speculators(sliding_window_non_causal=True)
    spec["transformer_layer_config"] |= kinds
    assert read_config(spec, INFO).causal == (False, False)
    spec["sliding_window_non_causal"] = False
    assert read_config(spec, INFO).causal == (True, False)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (raw_config(architectures=["JetSpecDraftModel"]), "this is JetSpec, which"),
        (raw_config(dflash={"causal_head": True}), "this is JetSpec, which"),
        (raw_config(architectures=["Gemma4DSparkModel"]), "this is DSpark with layers of Gemma 4"),
        (raw_config(dspark_block_size=5), "this is DSpark inside DeepSeek-V4, which"),
        (raw_config(dflash={"dspark_backbone_conv_enabled": True}), "has dspark_backbone_conv"),
        (raw_config(dflash={"projector_type": "domino"}), "this is Domino, which"),
        (speculators(speculators_model_type="xpress"), "this is XPress, which"),
        (raw_config(markov_rank=256), "says which token its first slot drafts"),
        (speculators(speculators_model_type="dspark", markov_head_type="fir"), "is 'fir', which"),
        (raw_config(attention_sink_bias=True), "has attention_sink_bias"),
        (raw_config(is_neox_style=False), "is_neox_style: false"),
        (raw_config(hidden=48), "has width 48, and the target 32"),
        (raw_config(ids=(0, 7)), "output of the target's last layer before its final norm"),
        (raw_config(ids=(0, 12)), "reads layers 0, 12"),
        (raw_config(num_target_layers=9), "of a target of 9 layers, and this one has 8"),
        (raw_config(block_size=1), "block_size is 1, which drafts nothing"),
        (raw_config(dflash={"mask_token_id": None}), "lacks mask_token_id"),
        (raw_config(layer_types=["sliding_attention"] * 2), "no sliding_window"),
        (raw_config(model_type="gemma4"), "of type gemma4"),
        (speculators(transformer_layer_config=None), "of type None"),
    ],
)
def test_other_configurations_are_refused(raw: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        read_config(raw, INFO)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_size": "x"}, "Field 'hidden_size' expected int, got str"),
        ({"num_hidden_layers": 0, "layer_types": ["full_attention"]}, "`num_hidden_layers`"),
        ({"rope_scaling": "x"}, "Field 'rope_parameters' with value 'x'"),
        ({"block_size": "x"}, "block_size is 'x', and no whole number"),
        ({"input_embedding_scale": []}, r"input_embedding_scale is \[\], and no number"),
        ({"final_logit_softcapping": "x"}, "final_logit_softcapping is 'x', and no number"),
        ({"use_swa": True}, "it has use_swa and no swa_window_size"),
        ({"dflash_config": 1}, "dflash_config is 1, and no object"),
        ({"dflash": {"target_layer_ids": 1}}, "target_layer_ids is 1, and no list of layers"),
        ({"dflash": {"target_layer_ids": ["x"]}}, r"target_layer_ids is \['x'\], and no list"),
        ({"layer_types": 3}, "Field 'layer_types'"),
    ],
)
def test_configurations_that_are_not_valid_are_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DraftwoodError, match=f"drafter's config.json is not valid: {reason}"):
        config(**changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"hidden_act": "swish9"},
            'hidden_act is "swish9", which transformers does not have',
        ),
        ({"rope_theta": "x"}, "config.json is not valid: unsupported operand"),
        ({"intermediate_size": -1}, "config.json is not valid: .*negative dimension"),
    ],
)
def test_layers_that_cannot_be_made_are_refused(
    changes: dict[str, Any], complaint: str, target: Runner, tmp_path: Path
) -> None:
    raw = raw_config()
    saved(tmp_path, raw | changes, random_tensors(raw))
    with pytest.raises(DraftwoodError, match=complaint):
        load_dflash(str(tmp_path), target, torch.float32)


def test_null_stands_for_a_default() -> None:
    nulls = dict.fromkeys(("block_size", "input_embedding_scale", "rope_theta"))
    found = config(**nulls)
    assert (found.block_size, found.input_scale, found.drafted) == (16, 1.0, 15)
    inner = speculators()["transformer_layer_config"] | {"sliding_window": None}
    assert read_config(speculators(transformer_layer_config=inner), INFO).windows == (None, None)
    dspark = speculators(architectures=["DSparkDraftModel"], speculators_model_type="dspark")
    assert read_config(dspark, INFO).markov_rank == 256
    assert read_config(dspark | {"markov_rank": None}, INFO).markov_rank == 0, "no head"
    assert config(num_key_value_heads=None).layers.num_key_value_heads == 4


@pytest.mark.parametrize("names", [3, "DFlashDraftModel", [["x"]], [3]])
def test_a_configuration_with_other_names_is_of_no_drafter(names: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": names, "text_config": 3}))
    assert kind_of("head", str(tmp_path)) == "eagle3"


def test_parts_of_its_own(target: Runner, tmp_path: Path) -> None:
    raw = raw_config()
    tensors = random_tensors(raw)
    embedding = torch.as_tensor(target.embedding().weight).detach().clone()
    output = target.lm_head().weight.detach().clone()  # type: ignore[union-attr,operator]
    shared = load_dflash(saved(tmp_path / "shared", raw, tensors), target, torch.float32)
    own = tensors | {"embed_tokens.weight": embedding, "lm_head.weight": output}
    alone = load_dflash(saved(tmp_path / "own", raw, own), target, torch.float32)
    masked = tensors | {"mask_embedding": embedding[7].clone()}
    third = load_dflash(saved(tmp_path / "mask", raw, masked), target, torch.float32)
    expected = drafts(shared)
    torch.testing.assert_close(drafts(alone), expected)
    torch.testing.assert_close(drafts(third), expected)
    doubled = {**own, "lm_head.weight": 2 * output}
    other = load_dflash(saved(tmp_path / "other", raw, doubled), target, torch.float32)
    torch.testing.assert_close(drafts(other), 2 * expected)


def drafts(network: Any) -> torch.Tensor:
    features = torch.randn(6, 64, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        context = network.read(features, 0)
        found: torch.Tensor = network(torch.tensor([5]), torch.tensor([6]), [context], 5)
    return found


def test_a_reduced_vocabulary(target: Runner, tmp_path: Path) -> None:
    raw = raw_config()
    tensors = random_tensors(raw)
    ids = torch.tensor([3, 9, 40])
    output = target.lm_head().weight.detach()  # type: ignore[union-attr,operator]
    whole = load_dflash(saved(tmp_path / "whole", raw, tensors), target, torch.float32)
    reduced = tensors | {"d2t": ids - torch.arange(3), "t2d": torch.zeros(VOCAB, dtype=torch.bool)}
    for number, change in enumerate(({}, {"lm_head.weight": output[ids].clone()})):
        name = saved(tmp_path / str(number), raw, reduced | change)
        network = load_dflash(name, target, torch.float32)
        assert network.token_ids.tolist() == ids.tolist()
        torch.testing.assert_close(drafts(network), drafts(whole)[..., ids])
    beyond = tensors | {"d2t": torch.tensor([VOCAB])}
    with pytest.raises(DraftwoodError, match="d2t names tokens outside"):
        load_dflash(saved(tmp_path / "beyond", raw, beyond), target, torch.float32)


def test_names_of_other_writers(target: Runner, tmp_path: Path) -> None:
    raw = raw_config(layers=1)
    tensors = random_tensors(raw)
    plain = load_dflash(saved(tmp_path / "plain", raw, tensors), target, torch.float32)
    spelt = {
        f"model.{name}".replace("layers.0.", "midlayer.")
        .replace("fc.weight", "encoder.fc.weight")
        .replace("hidden_norm.weight", "encoder.output_norm_enc.weight"): each
        for name, each in tensors.items()
    }
    other = load_dflash(saved(tmp_path / "other", raw, spelt), target, torch.float32)
    torch.testing.assert_close(drafts(other), drafts(plain))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"fc.weight": torch.zeros(32, 96)}, r"fc.weight is \[32, 96\].*\[32, 64\]"),
        ({"layers.2.mlp.up_proj.weight": torch.zeros(2, 2)}, "has layers.2.mlp.up_proj.weight"),
        ({"aux_hidden_norms.0.weight": torch.zeros(32)}, "has aux_hidden_norms.0.weight"),
        ({"norm.weight": torch.zeros(32, dtype=torch.int8)}, "not quantised"),
    ],
)
def test_other_tensors_are_refused(
    target: Runner, tmp_path: Path, change: dict[str, torch.Tensor], complaint: str
) -> None:
    raw = raw_config()
    name = saved(tmp_path, raw, random_tensors(raw) | change)
    with pytest.raises(DraftwoodError, match=complaint):
        load_dflash(name, target, torch.float32)


def test_a_mask_without_a_row_is_refused(target: Runner, tmp_path: Path) -> None:
    raw = raw_config(dflash={"mask_token_id": 5000})
    name = saved(tmp_path, raw, random_tensors(raw))
    with pytest.raises(DraftwoodError, match="mask token 5000 has no row"):
        load_dflash(name, target, torch.float32)


def test_a_head_option_finds_it(tmp_path: Path) -> None:
    raw = raw_config()
    name = saved(tmp_path / "z-lab", raw, random_tensors(raw))
    assert kind_of("head", name) == "dflash"
    assert method(f"auto:head={name}").drafters["draft"] == DFlash(name)
    other = saved(tmp_path / "other", speculators(speculators_model_type="xpress"), {})
    assert kind_of("head", other) == "dflash", "which says what is wrong with it"
