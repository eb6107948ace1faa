"""Checkpoints whose MTP layers are not there, or not read: each is refused with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import modeling_layers

from draftwood.drafters.mtp.checkpoint import load_mtp
from draftwood.drafters.mtp.drafter import Mtp
from draftwood.drafters.mtp.families import names_layers, refuse_family
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.methods.binding import kind_of
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from tests.factories.mtp_targets import WEIGHTS, loaded_target, needs_mtp, saved_target
from tests.factories.tiny_llama import save_tiny, tiny_llama

FIRST = "model.layers.2."


def target_of(directory: Path) -> Runner:
    return attach(loaded_target(directory), self_test=False)


def changed(directory: Path, **fields: Any) -> None:
    """Change fields of the ``config.json``."""
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def rewritten(directory: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})


def test_another_version_of_transformers_is_told_which_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(modeling_layers, "MtpModel", raising=False)
    target = attach(tiny_llama(), self_test=False)
    with pytest.raises(DraftwoodError, match=r"MTP layers need transformers 5\.\d+ or newer, and"):
        load_mtp("anywhere", target, torch.float32)


@needs_mtp
def test_a_checkpoint_without_the_layers_is_refused(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path))
    tensors = load_file(tmp_path / WEIGHTS)
    rewritten(tmp_path, {name: t for name, t in tensors.items() if not name.startswith(FIRST)})
    with pytest.raises(DraftwoodError, match=r"lacks the MTP layers .* from model.layers.2 on"):
        Mtp().build(ModelHost(target))


@needs_mtp
def test_a_layer_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path))
    tensors = load_file(tmp_path / WEIGHTS)
    del tensors[f"{FIRST}enorm.weight"]
    rewritten(tmp_path, tensors)
    with pytest.raises(DraftwoodError, match=r"cannot load the MTP layers .*enorm"):
        Mtp().build(ModelHost(target))


@needs_mtp
def test_layers_of_other_shapes_are_refused(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path))
    tensors = load_file(tmp_path / WEIGHTS)
    tensors[f"{FIRST}enorm.weight"] = torch.ones(7)
    rewritten(tmp_path, tensors)
    with pytest.raises(DraftwoodError, match="cannot load the MTP layers"):
        Mtp().build(ModelHost(target))


@needs_mtp
def test_quantised_layers_are_refused(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path))
    tensors = load_file(tmp_path / WEIGHTS)
    name = f"{FIRST}eh_proj.weight"
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    rewritten(tmp_path, tensors)
    with pytest.raises(DraftwoodError, match=r"eh_proj.weight holds F8_E4M3 .*head=PATH"):
        Mtp().build(ModelHost(target))


@needs_mtp
def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path / "whole"))
    damaged = saved_target(tmp_path / "damaged")
    (damaged / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(DraftwoodError, match="cannot read"):
        Mtp(str(damaged)).build(ModelHost(target))


@needs_mtp
def test_no_layers_in_the_configuration(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path))
    changed(tmp_path, num_nextn_predict_layers=0)
    with pytest.raises(DraftwoodError, match="num_nextn_predict_layers is 0"):
        Mtp().build(ModelHost(target))


@needs_mtp
def test_a_target_that_was_not_loaded_names_no_checkpoint(tmp_path: Path) -> None:
    host = ModelHost(attach(tiny_llama(), self_test=False))
    with pytest.raises(DraftwoodError, match=r"not loaded from a checkpoint.*head=PATH"):
        Mtp().build(host)


@needs_mtp
def test_layers_of_another_target_are_refused(tmp_path: Path) -> None:
    directory = saved_target(tmp_path)
    host = ModelHost(attach(tiny_llama(), self_test=False))
    with pytest.raises(DraftwoodError, match="of a target of width 32 with 96 tokens"):
        Mtp(str(directory)).build(host)


@needs_mtp
def test_a_configuration_that_is_not_one(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path))
    changed(tmp_path, hidden_size="wide")
    with pytest.raises(DraftwoodError, match="cannot be used"):
        Mtp().build(ModelHost(target))


@needs_mtp
def test_a_family_without_layers_is_refused_by_name(tmp_path: Path) -> None:
    host = ModelHost(attach(tiny_llama(), self_test=False))
    with pytest.raises(DraftwoodError, match=r"family is 'llama', and those of deepseek_v3, glm4"):
        Mtp(str(save_tiny(tmp_path))).build(host)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"model_type": "mimo"}, "'mimo' are not read: .* takes the hidden state first"),
        ({"model_type": "mimo_v2_flash"}, "sizes of its own"),
        ({"model_type": "ernie4_5_moe"}, "no norm before the output"),
        ({"model_type": "nemotron_h"}, "made of several blocks"),
        ({"model_type": "step3p7", "text_config": {"model_type": "step3p5"}}, "Step 3.7 alone"),
        ({"speculators_model_type": "mtp"}, "names of MTP layers are not read: .* head=PATH"),
        ({"model_type": "deepseek_v4"}, "hyper-connections"),
        ({"model_type": "deepseek_v32"}, "indexed keys"),
        ({"model_type": "glm_moe_dsa"}, "indexed keys"),
        ({"model_type": "mistral_large4"}, "DSpark"),
        ({"model_type": "inkling"}, "position biases"),
        ({}, "family is ''"),
        ({"model_type": "kimi", "text_config": {"model_type": "deepseek_v3"}}, "multi-modal"),
    ],
)
def test_other_families_are_refused_with_the_reason(raw: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        refuse_family(raw)


@needs_mtp
def test_layers_of_a_checkpoint_that_reads_images_as_well(tmp_path: Path) -> None:
    """Its text's layers are those of the same target without the images."""
    alone = saved_target(tmp_path / "alone", "qwen3_5_text")
    both = saved_target(tmp_path / "both", "qwen3_5_text")
    text = json.loads((both / "config.json").read_text())
    whole = {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]}
    (both / "config.json").write_text(json.dumps(whole | {"text_config": text}))
    assert names_layers(json.loads((both / "config.json").read_text()))
    target = target_of(alone)
    [own], [other] = (load_mtp(str(each), target, torch.float32) for each in (alone, both))
    for name, tensor in own.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


@needs_mtp
def test_a_family_that_says_nothing_of_its_layers(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path, "qwen3_next"))
    assert names_layers(json.loads((tmp_path / "config.json").read_text()))
    tensors = load_file(tmp_path / WEIGHTS)
    rewritten(tmp_path, {name: t for name, t in tensors.items() if not name.startswith("mtp.")})
    with pytest.raises(DraftwoodError, match=r"lacks the MTP layers that its target has \(1, mtp"):
        Mtp().build(ModelHost(target))


@needs_mtp
def test_a_directory_with_mtp_layers_is_told_from_heads(tmp_path: Path) -> None:
    directory = saved_target(tmp_path / "target")
    assert kind_of("head", str(directory)) == "mtp"
    raw = json.loads((directory / "config.json").read_text())
    assert names_layers(raw)
    assert not names_layers(raw | {"num_nextn_predict_layers": 0})
    assert not names_layers(raw | {"draft_vocab_size": 32000})
    assert not names_layers(raw | {"architectures": ["LlamaForCausalLMEagle3"]})
    assert not names_layers({})
