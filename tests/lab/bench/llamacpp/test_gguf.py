"""A GGUF file has the model's weights and settings, and a Llama computed from it is the model."""

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.llamacpp import gguf as our_gguf
from tests.factories.tiny_llama import tiny_llama
from tests.lab.bench.llamacpp.gguf_reader import Read, logits, read

IDS = [3, 17, 0, 5, 5, 19, 8, 2, 11, 3]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 30.0, "factor": 3.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}


def llama(dtype: torch.dtype = torch.float32, **changed: Any) -> LlamaForCausalLM:
    """A tiny Llama of this dtype; ``changed`` are settings of its configuration."""
    model = tiny_llama(**changed)
    for parameter in model.parameters():  # its rotary angles stay float32, as in a loaded model
        parameter.data = parameter.data.to(dtype)
    return model


def written(model: LlamaForCausalLM, directory: Path) -> Read:
    our_gguf.write(model, directory / "model.gguf")
    return read(directory / "model.gguf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_tensor_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    model = llama(dtype, layers=1, head_dim=6)
    file = written(model, tmp_path)
    matrices = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}[dtype]
    ours = {name: value.detach().double() for name, value in model.named_parameters()}
    attention = "model.layers.0.self_attn"
    same = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output.weight": "lm_head.weight",
        "output_norm.weight": "model.norm.weight",
        "blk.0.attn_norm.weight": "model.layers.0.input_layernorm.weight",
        "blk.0.attn_v.weight": f"{attention}.v_proj.weight",
        "blk.0.attn_output.weight": f"{attention}.o_proj.weight",
        "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
        "blk.0.ffn_gate.weight": "model.layers.0.mlp.gate_proj.weight",
        "blk.0.ffn_up.weight": "model.layers.0.mlp.up_proj.weight",
        "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
    }
    turned = {"blk.0.attn_q.weight": ("q_proj", 4), "blk.0.attn_k.weight": ("k_proj", 2)}
    assert set(file.tensors) == {*same, *turned}
    for name, own in same.items():
        assert torch.equal(file.tensors[name], ours[own]), name
    # Pairs (i, i + 3) of each head's six dimensions become neighbours.
    order = [0, 3, 1, 4, 2, 5]
    for name, (part, heads) in turned.items():
        own_heads = ours[f"{attention}.{part}.weight"].view(heads, 6, -1)
        assert torch.equal(file.tensors[name].view(heads, 6, -1), own_heads[:, order]), name
    for name, kind in file.types.items():
        assert kind == ("F32" if "norm" in name else matrices), name


def test_settings_are_those_of_the_configuration(tmp_path: Path) -> None:
    rope = {"rope_theta": 500000.0}
    model = llama(torch.bfloat16, layers=3, head_dim=6, rms_norm_eps=1e-5, rope_parameters=rope)
    keys = written(model, tmp_path).keys
    wanted = {
        "general.architecture": "llama",
        "general.file_type": 32,
        "llama.context_length": 256,
        "llama.vocab_size": 260,
        "llama.embedding_length": 32,
        "llama.block_count": 3,
        "llama.feed_forward_length": 48,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 6,
        "llama.attention.value_length": 6,
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
        "llama.rope.dimension_count": 6,
        "llama.rope.freq_base": 500000.0,
        "tokenizer.ggml.model": "none",
    }
    assert {key: keys[key] for key in wanted} == wanted
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["llama.block_count"].types[0].name == "UINT32"
    assert fields["llama.rope.freq_base"].types[0].name == "FLOAT32"


@pytest.mark.parametrize(
    ("rule", "divisors"),
    [
        (LINEAR, [3.0, 3.0]),
        # Wavelengths 2π and 2π * 100: below 64 / 4 unchanged, above 64 / 1 divided by the factor.
        ({**LLAMA3, "rope_theta": 10000.0}, [1.0, 4.0]),
    ],
)
def test_angles_that_are_scaled_by_constants_have_divisors(
    tmp_path: Path, rule: dict[str, Any], divisors: list[float]
) -> None:
    file = written(llama(head_dim=4, rope_parameters=rule), tmp_path)
    assert file.tensors["rope_freqs.weight"].tolist() == pytest.approx(divisors)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"tie_word_embeddings": True},
        {"head_dim": 6, "layers": 3},
        {"rope_parameters": LLAMA3},
        {"rope_parameters": LINEAR},
    ],
)
def test_a_llama_of_neighbouring_pairs_computes_the_models_logits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    model = llama(**changed)
    file = written(model, tmp_path)
    assert ("output.weight" in file.tensors) == ("tie_word_embeddings" not in changed)
    found = logits(file, IDS)
    monkeypatch.setattr(our_gguf, "interleaved", lambda weight, heads: weight)
    turned = logits(written(model, tmp_path), IDS)
    model.double()
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.double()
    with torch.inference_mode():
        wanted = model(torch.tensor([IDS])).logits[0]
    # Both compute in float64 but for the norms and the rotary angles of transformers.
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    # Positions and the order of rows matter at this tolerance.
    assert float((found[0] - found[-1]).abs().max()) > 0.01
    assert float((turned - wanted).abs().max()) > 0.01


def test_a_file_is_written_once_and_goes_with_its_model() -> None:
    model = llama()
    path = our_gguf.file_of(model)
    stamp = path.stat().st_mtime_ns
    assert our_gguf.file_of(model) == path
    assert path.stat().st_mtime_ns == stamp
    other = llama()
    assert our_gguf.file_of(other) != path
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert not path.parent.exists()
    assert our_gguf.file_of(other).exists()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, tensor: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", full)
    with pytest.raises(DraftwoodError, match=r"to .*: No space left on device; set TMPDIR"):
        our_gguf.write(llama(), tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_without_gguf_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(DraftwoodError, match=r"needs gguf .*pip install 'draftwood\[llamacpp\]'"):
        our_gguf.write(llama(), tmp_path / "model.gguf")


def qwen() -> PreTrainedModel:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=20, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, pad_token_id=None,
        )
    )  # fmt: skip


class Derived(LlamaForCausalLM):  # type: ignore[no-untyped-call]
    """A model that may compute anything."""


def quantised() -> PreTrainedModel:
    model = llama()
    gate = model.model.layers[0].mlp.gate_proj
    gate.weight = torch.nn.Parameter(gate.weight.to(torch.int8), requires_grad=False)
    return model


def part_of_a_head() -> PreTrainedModel:
    model = llama()
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq[:1]
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (qwen, "are for LlamaForCausalLM and this target is Qwen3ForCausalLM: leave them out"),
        (lambda: Derived(llama().config), "this target is Derived: leave them out"),
        (lambda: llama(hidden_act="gelu"), "its activation is 'gelu'"),
        (lambda: llama(rope_parameters=YARN), "rule 'yarn', not default, linear, llama3"),
        (lambda: llama(attention_bias=True), r"has no weight .*layers\.0\.self_attn\.q_proj\.bias"),
        (lambda: llama(mlp_bias=True), r"has no weight .*layers\.0\.mlp\.gate_proj\.bias"),
        (quantised, r"gate_proj\.weight is of torch\.int8: load it unquantised"),
        (part_of_a_head, "a part of each head"),
    ],
)
def test_what_the_file_cannot_hold_is_refused(tmp_path: Path, model: Any, message: str) -> None:
    with pytest.raises(DraftwoodError, match=message):
        our_gguf.write(model(), tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("precision", "most"), [("q8_0", 0.01), ("q4_1", 0.12)])
def test_matrices_may_be_quantised(
    tmp_path: Path, precision: our_gguf.Precision, most: float
) -> None:
    model = llama(layers=1, intermediate_size=64)
    path = tmp_path / "model.gguf"
    our_gguf.write(model, path, precision)
    file = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in file.tensors}
    for name, own in (
        ("output.weight", model.lm_head.weight),
        ("blk.0.ffn_down.weight", model.model.layers[0].mlp.down_proj.weight),
    ):
        found = tensors[name]
        assert found.tensor_type.name == precision.upper()
        values = torch.from_numpy(gguf.quants.dequantize(found.data, found.tensor_type))
        wanted = own.detach()
        assert 0 < (values - wanted).abs().max() < most * wanted.abs().max()
    assert tensors["output_norm.weight"].tensor_type.name == "F32"
    assert file.fields["general.file_type"].parts[-1][0] == {"q8_0": 7, "q4_1": 3}[precision]


def test_rows_that_are_no_blocks_are_not_quantised(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match=r"no blocks of 32: give weights=model"):
        our_gguf.write(llama(layers=1), tmp_path / "model.gguf", "q8_0")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_with_int8_weights_is_written_as_q8(tmp_path: Path) -> None:
    torchao = pytest.importorskip("torchao.quantization")
    model = llama(layers=1, intermediate_size=64)
    plain = model.lm_head.weight.detach().clone()
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    path = tmp_path / "model.gguf"
    with pytest.raises(DraftwoodError, match="give the peer weights=q8_0"):
        our_gguf.write(model, path)
    our_gguf.write(model, path, "q8_0")
    [head] = [tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == "output.weight"]
    values = torch.from_numpy(gguf.quants.dequantize(head.data, head.tensor_type))
    assert (values - plain).abs().max() < 0.02 * plain.abs().max()
