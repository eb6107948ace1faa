"""Both public layouts of config.json, and what of them is refused."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from draftwood.drafters.eagle3.config import (
    Eagle3Config,
    Stored,
    default_taps,
    read_config,
    write_config,
)
from draftwood.errors import DraftwoodError
from tests.factories.eagle3_heads import HT, TARGET, VD, H, V, tiny_config

LLAMA: dict[str, Any] = {
    "hidden_size": H,
    "intermediate_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50.0,
    "num_hidden_layers": 1,
    "model_type": "llama",
    "vocab_size": 32000,
}
IDS = "eagle_aux_hidden_state_layer_ids"


def original(**changes: Any) -> dict[str, Any]:
    """The config of the first published heads; SpecForge adds head_dim and eagle_config."""
    return LLAMA | {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": VD} | changes


def speculators(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3"},
        "transformer_layer_config": dict(LLAMA),
        "draft_vocab_size": VD,
        "target_hidden_size": None,
        "norm_before_residual": True,
        IDS: None,
    } | changes


def read(raw: dict[str, Any], **target: Any) -> Eagle3Config:
    before = copy.deepcopy(raw)
    config = read_config(raw, replace(TARGET, **target))
    assert raw == before
    return config


@pytest.mark.parametrize("layout", [original, speculators])
def test_the_common_fields(layout: Any) -> None:
    config = read(layout())
    assert (config.hidden_size, config.target_hidden_size) == (H, HT)
    assert (config.vocab_size, config.draft_vocab_size) == (V, VD)  # V is the target's, not 32000
    assert (config.intermediate_size, config.rms_norm_eps) == (20, 1e-5)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 4)
    assert config.num_hidden_layers == 1
    assert config.taps == (2, 4, 5)
    assert config.norm_before_residual is (layout is speculators)
    assert config.get_text_config() is config


def test_what_may_be_left_out() -> None:
    short = original()
    for name in ("num_key_value_heads", "draft_vocab_size", "num_hidden_layers", "rope_theta"):
        del short[name]
    config = read(short)
    assert config.num_key_value_heads == 4
    assert config.draft_vocab_size == V
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}
    assert read(original(head_dim=6)).head_dim == 6
    spare = speculators()
    del spare["norm_before_residual"]
    assert not read(spare).norm_before_residual


@pytest.mark.parametrize("layout", [original, speculators])
def test_layers_by_the_state_that_enters_them(layout: Any) -> None:
    assert read(layout(**{IDS: [1, 7, 0]})).taps == (1, 7, 0)
    assert read(layout(**{IDS: []})).taps == (2, 4, 5)


def test_layers_by_their_output() -> None:
    # As published for a target of 94 layers: the outputs of 1, 46 and 90 are the usual three.
    config = read(original(eagle_config={IDS: [1, 46, 90]}), layers=94)
    assert config.taps == default_taps(94) == (2, 47, 91)
    assert read(original(eagle_config={IDS: []})).taps == (2, 4, 5)
    assert read(original(eagle_config={IDS: [-1, 3]})).taps == (0, 4)
    assert read(original(target_layer_ids=[0, 2, 4, 5, 6])).taps == (1, 3, 5, 6, 7)
    assert read(original(target_layer_ids=[1, 3], **{IDS: [2, 4]})).taps == (2, 4)
    with pytest.raises(DraftwoodError, match=r"target_layer_ids those entering \[2, 4\]"):
        read(original(target_layer_ids=[1, 3], **{IDS: [1, 3]}))


@pytest.mark.parametrize(
    ("fields", "taps"),
    [
        ({"aux_hidden_states_layer_ids": [1, 3]}, (2, 4)),  # AngelSlim: outputs
        ({"aux_hidden_state_layer_ids": [1, 3]}, (1, 3)),
        ({"eagle_config": {"layer_ids": [1, 3]}}, (1, 3)),
        ({"aux_hidden_states_layer_ids": [1, 3], IDS: [2, 4]}, (2, 4)),
        ({"aux_hidden_states_layer_ids": None, "eagle_config": {"layer_ids": []}}, (2, 4, 5)),
    ],
)
def test_other_names_of_layers(fields: dict[str, Any], taps: tuple[int, ...]) -> None:
    assert read(original(**fields)).taps == taps


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"hidden_layer_ids": [1, 3]}, "has hidden_layer_ids, which is not read"),
        ({"eagle_config": {"target_layer_ids": [1]}}, r"has eagle_config\.target_layer_ids, which"),
        ({"aux_hidden_states_layer_ids": [2, 4], IDS: [2, 4]}, "in ways that differ"),
    ],
)
def test_layers_by_names_that_are_not_known_or_contradict(
    fields: dict[str, Any], name: str
) -> None:
    with pytest.raises(DraftwoodError, match=name):
        read(original(**fields))


def test_layers_named_twice() -> None:
    assert read(original(**{IDS: [1, 3], "eagle_config": {IDS: [0, 2]}})).taps == (1, 3)
    with pytest.raises(DraftwoodError, match=r"entering \[1, 3\].*entering \[2, 4\]"):
        read(original(**{IDS: [1, 3], "eagle_config": {IDS: [1, 3]}}))


def test_layers_that_the_target_lacks() -> None:
    with pytest.raises(DraftwoodError, match=r"entering layers \[2, 4, 8\].*are 0 to 7"):
        read(original(**{IDS: [2, 4, 8]}))
    said = r"output of the last layer \(7\) cannot be read: .* behind the final norm"
    for last in ({"eagle_config": {IDS: [1, 7]}}, {"target_layer_ids": [1, 7]}, {IDS: [1, 8]}):
        with pytest.raises(DraftwoodError, match=said):
            read(original(**last))
    with pytest.raises(DraftwoodError, match=r"are 0 to 7; it was made for another target"):
        read(original(target_layer_ids=[1, 30]))
    with pytest.raises(DraftwoodError, match="target of 2 layers"):
        read(original(), layers=2)
    assert default_taps(3) == (2, 1, 0)


def test_rope_in_every_spelling() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    long = {"max_position_embeddings": 256}
    old = read(original(rope_scaling=scaling, **long))
    new = LLAMA | long | {"rope_parameters": scaling | {"rope_theta": 50.0}}
    del new["rope_theta"]
    nested = read(speculators(transformer_layer_config=new))
    tables = [LlamaRotaryEmbedding(config).inv_freq for config in (old, nested, read(original()))]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    assert torch.allclose(tables[2], 50.0 ** -torch.tensor([0, 0.5]))


@pytest.mark.parametrize("layout", [original, speculators])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"use_mtp_layernorm": True}, "give a head with use_mtp_layernorm = False"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "own width 16, not 1 of width 24"),
        ({"target_hidden_size": 32}, r"width 32 .*target's have 24"),
        ({"draft_vocab_size": 41}, "draft_vocab_size is 41; give 1 to 40"),
        ({"draft_vocab_size": "many"}, "draft_vocab_size"),
    ],
)
def test_heads_that_are_refused(layout: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DraftwoodError, match=message):
        read(layout(**wrong))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"layer_types": ["sliding_attention"]}, "sliding_attention, a variant"),
        ({"rope_scaling": {"rope_type": "mrope", "rope_theta": 1.0}}, '"mrope"'),
        ({"hidden_act": "wave"}, '"wave"'),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"hidden_size": 15}, "hidden size .15. is not a multiple"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps.*small|small"),
    ],
)
def test_layers_that_are_refused(wrong: dict[str, Any], message: str) -> None:
    for raw in (original(**wrong), speculators(transformer_layer_config=LLAMA | wrong)):
        with pytest.raises(DraftwoodError, match=message):
            read(raw)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"eagle_config": 1}, "eagle_config is 1, and no object"),
        ({"transformer_layer_config": [1]}, r"transformer_layer_config is \[1\], and no object"),
        ({IDS: 3}, f"{IDS} is 3, and no list of layers"),
        ({IDS: ["x"]}, rf"{IDS} is \['x'\], and no list of layers"),
        ({"eagle_config": {IDS: "12"}}, f"{IDS} is '12', and no list of layers"),
        ({"target_layer_ids": True}, "target_layer_ids is True, and no list of layers"),
        ({"draft_vocab_size": "x"}, "Field 'draft_vocab_size' expected int, got str"),
    ],
)
def test_configurations_that_are_not_valid_are_refused(wrong: dict[str, Any], reason: str) -> None:
    for raw in (original(**wrong), speculators(**wrong)):
        with pytest.raises(DraftwoodError, match=f"the head's config.json is not valid: {reason}"):
            read(raw)


def test_layers_of_another_family() -> None:
    # Their config classes have other defaults, which a published config leaves out.
    with pytest.raises(DraftwoodError, match='"gemma2"; only layers of type llama and qwen3'):
        read(speculators(transformer_layer_config=LLAMA | {"model_type": "gemma2"}))
    assert read(original(model_type="qwen3")).hidden_size == H  # there it is only a label


def test_qwen3_layers() -> None:
    short = {"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1}
    config = read(speculators(transformer_layer_config=short))
    default = Qwen3Config()
    assert config.qk_norm
    for name in ("head_dim", "rms_norm_eps", "num_attention_heads", "intermediate_size"):
        assert getattr(config, name) == getattr(default, name), name
    assert not read(original(model_type="qwen3")).qk_norm
    labelled = read_config(original(model_type="qwen3"), TARGET, Stored(qk_norm=True, head_dim=6))
    assert (labelled.qk_norm, labelled.head_dim) == (True, 6)


def test_missing_config_fields_follow_from_tensors() -> None:
    short = original()
    del short["draft_vocab_size"], short["num_hidden_layers"]
    config = read_config(short, TARGET, Stored(draft_vocab_size=9, layers=2, fc_bias=True))
    assert (config.draft_vocab_size, config.num_hidden_layers) == (9, 2)
    assert config.fc_bias
    assert read(original(bias=True)).fc_bias
    with pytest.raises(DraftwoodError, match=r"num_hidden_layers = 1, but .* has tensors of 2"):
        read_config(original(), TARGET, Stored(layers=2))


def test_norms_are_used_if_they_are_stored_or_named() -> None:
    cases = (
        ("norm_before_fc", Stored(input_norm=True)),
        ("fc_norm", Stored(fc_norm=True)),
    )
    for flag, stored in cases:
        assert getattr(read_config(original(), TARGET, stored), flag)
        assert not getattr(read_config(original(**{flag: False}), TARGET, stored), flag)
        assert getattr(read(original(**{flag: True})), flag)
        assert getattr(read(original(eagle_config={flag: True})), flag)
        assert not getattr(read(original()), flag)
    assert read(original(norm_output=True)).norm_output


def test_the_last_hidden_state_alone() -> None:
    same = {"eagle_config": {"use_aux_hidden_state": False, IDS: [1, 3]}}
    config = read(original(**same), hidden_size=H)
    assert (config.fuse, config.taps, config.target_hidden_size) == (False, (8,), H)


def test_explicit_default_flags_are_accepted() -> None:
    spelt = {"norm_output": False, "logit_scale": 1.0, "use_sliding_window": False}
    nested = {"use_aux_hidden_state": True, "use_last_layernorm": True}
    assert read(original(**spelt, eagle_config=nested)).taps == (2, 4, 5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"taps": (0, 7)},
        {"norm_before_residual": True, "attention_bias": True, "mlp_bias": True},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "hidden_act": "gelu"},
        {"own_embedding": True, "draft_vocab_size": V},
        {"num_hidden_layers": 3, "qk_norm": True, "norm_output": True},
        {"norm_before_fc": True, "fc_norm": True, "fc_bias": True},
        {"fuse": False, "taps": (8,), "hidden_size": HT},
    ],
    ids=str,
)
def test_written_and_read_again(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    raw = write_config(config)
    again = read_config(raw, TARGET, Stored(own_embedding=config.own_embedding))
    assert again.to_dict() == config.to_dict()
    if config.fuse:
        assert [i + 1 for i in raw["eagle_config"][IDS]] == raw[IDS] == list(config.taps)


def test_no_taps_at_all() -> None:
    with pytest.raises(DraftwoodError, match="at least one layer"):
        tiny_config(taps=())
