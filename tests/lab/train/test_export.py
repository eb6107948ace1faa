"""What is exported loads with transformers alone."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.lab.train.export import export_model, is_finished, load_exported
from draftwood.lab.train.recipe import ModelShape
from draftwood.lab.train.text_model import new_model

SHAPE = ModelShape(hidden=16, layers=1, heads=1, kv_heads=1, head_dim=16, ffn=16, context=64)


def test_an_export_loads_in_bfloat16(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = new_model(SHAPE, len(tokenizer), 1)
    export_model(model, tokenizer, {"finished": True, "é": 1}, tmp_path)
    assert model.dtype == torch.float32
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.dtype == torch.bfloat16
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"]) == (0, 0)
    assert not {"temperature", "top_p", "top_k", "do_sample"} & generation.keys()
    ids = AutoTokenizer.from_pretrained(tmp_path)("def alpha", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        torch.testing.assert_close(
            loaded(ids).logits.float(), model(ids).logits, atol=0.02, rtol=0.05
        )
    assert is_finished(tmp_path)
    wide = load_exported(tmp_path, torch.device("cpu"))
    assert wide.dtype == torch.float32
    assert not wide.training
    export_model(model, tokenizer, {"finished": False}, tmp_path)
    assert not is_finished(tmp_path)


def test_a_directory_without_model_is_refused(tmp_path: Path) -> None:
    assert not is_finished(tmp_path)
    with pytest.raises(DraftwoodError, match="train it first"):
        load_exported(tmp_path, torch.device("cpu"))
