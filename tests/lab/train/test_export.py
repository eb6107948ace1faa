"""What is exported loads with transformers alone."""

import json
import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.lab.train.export import check_export, export_model, is_finished, load_exported
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


def test_a_failed_export_changes_nothing(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_model(SHAPE, len(tokenizer), 1)
    export_model(model, tokenizer, {"finished": True}, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with torch.no_grad():
        next(model.parameters()).zero_()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(type(tokenizer), "save_pretrained", full)
    with pytest.raises(OSError, match="no space left"):
        export_model(model, tokenizer, {"finished": True}, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_interrupted_replacement_is_not_finished(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_model(SHAPE, len(tokenizer), 1)
    export_model(model, tokenizer, {"finished": True}, tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_model(model, tokenizer, {"finished": True}, tmp_path)
    assert not is_finished(tmp_path)


def test_a_place_for_an_export_is_checked_beforehand(tmp_path: Path) -> None:
    check_export(tmp_path / "new" / "newer", "target")
    check_export(tmp_path, "target")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "new"):
        with pytest.raises(DraftwoodError, match="file is a file: name another directory"):
            check_export(place, "target")
