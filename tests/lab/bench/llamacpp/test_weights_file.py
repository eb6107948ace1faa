"""A file holds the model's weights bit by bit, and a Llama computed from it is the model."""

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.llamacpp import gguf as our_gguf
from tests.factories.tiny_llama import tiny_llama
from tests.lab.bench.llamacpp.gguf_reader import logits, read
from tests.lab.bench.llamacpp.test_layout import llama

IDS = [3, 17, 0, 5, 5, 19, 8, 2, 11, 3]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_tensor_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    model = llama(dtype, head_dim=6)
    our_gguf.write(model, tmp_path / "model.gguf")
    file = read(tmp_path / "model.gguf")
    matrices = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}[dtype]
    ours = dict(model.named_parameters())
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
        assert torch.equal(file.tensors[name], ours[own].detach().double()), name
    for name, (part, heads) in turned.items():
        rows = ours[f"{attention}.{part}.weight"].detach().double()
        for head in range(heads):
            for i in range(3):
                for half in (0, 1):
                    there, here = head * 6 + 2 * i + half, head * 6 + 3 * half + i
                    assert torch.equal(file.tensors[name][there], rows[here]), (name, there)
    for name, kind in file.types.items():
        assert kind == ("F32" if "norm" in name else matrices), name


def test_the_head_of_the_file_says_what_the_layout_says(tmp_path: Path) -> None:
    model = tiny_llama()
    our_gguf.write(model, tmp_path / "model.gguf")
    keys = read(tmp_path / "model.gguf").keys
    assert keys["general.architecture"] == "llama"
    for key, value in our_gguf.metadata(model).items():
        assert keys[key] == (pytest.approx(value) if isinstance(value, float) else value), key
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    kinds = {key: fields[key].types[0].name for key in our_gguf.metadata(model)}
    assert kinds["llama.block_count"] == "UINT32"
    assert kinds["llama.rope.freq_base"] == "FLOAT32"
    assert kinds["tokenizer.ggml.model"] == "STRING"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"tie_word_embeddings": True},
        {"head_dim": 6, "num_hidden_layers": 2},
        {"rope_parameters": LLAMA3},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 30.0, "factor": 3.0}},
    ],
)
def test_a_llama_of_neighbouring_pairs_computes_the_models_logits(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    model = llama(initializer_range=0.4, **changed)
    our_gguf.write(model, tmp_path / "model.gguf")
    found = logits(read(tmp_path / "model.gguf"), IDS)
    model.double()
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.double()
    with torch.inference_mode():
        wanted = model(torch.tensor([IDS])).logits[0]
    # Both compute in float64 but for the norms and the rotary angles of transformers.
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    # Positions matter at this tolerance: the last token stands elsewhere too.
    assert float((found[0] - found[-1]).abs().max()) > 0.01


def test_rows_in_transformers_order_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(our_gguf, "interleaved", lambda weight, heads: weight)
    model = llama(initializer_range=0.4, head_dim=6)
    our_gguf.write(model, tmp_path / "model.gguf")
    with torch.inference_mode():
        wanted = model(torch.tensor([IDS])).logits[0].double()
    found = logits(read(tmp_path / "model.gguf"), IDS)
    assert float((found - wanted).abs().max()) > 0.01


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


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("before")

    def full(self: object, tensor: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", full)
    with pytest.raises(DraftwoodError, match=r"to .*: No space left on device; set TMPDIR"):
        our_gguf.write(llama(), path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]
    assert path.read_text() == "before"


def test_a_refused_model_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="has no weight"):
        our_gguf.write(llama(mlp_bias=True), tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_without_gguf_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(DraftwoodError, match=r"needs gguf .*pip install 'draftwood\[llamacpp\]'"):
        our_gguf.write(llama(), tmp_path / "model.gguf")
