"""What the doctor says of a model's weights before they are loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import draftwood
from draftwood.lab.doctor import weights
from draftwood.lab.doctor.weights import Weights, fit_finding, weights_of
from tests.factories.tiny_llama import save_tiny, tiny_llama, tiny_tokenizer

CPU = torch.device("cpu")


def stored(model: Any) -> int:
    """Bytes of a model's parameters, those of int8 with their scales."""
    found = 0
    for each in model.parameters():
        inner = [getattr(each, name) for name in ("qdata", "scale") if hasattr(each, name)]
        found += sum(part.nbytes for part in inner or [each])
    return found


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("auto", 4)])
def test_weights_are_counted_before_they_are_loaded(dtype: str, size: int) -> None:
    loaded = draftwood.load("embedded")
    parameters = sum(each.numel() for each in loaded.model.parameters())
    whole = parameters * size
    assert weights_of("embedded", dtype, CPU) == Weights(parameters, whole, whole)


@pytest.mark.parametrize("tied", [False, True])
def test_int8_is_made_of_the_checkpoint_in_its_own_format(tmp_path: Path, tied: bool) -> None:
    """It is loaded whole; embeddings keep their format."""
    pytest.importorskip("torchao")
    model: Any = tiny_llama(tie_word_embeddings=tied)
    model.bfloat16().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    whole = weights_of(str(tmp_path), "auto", CPU)
    found = weights_of(str(tmp_path), "int8", CPU)
    assert whole is not None
    assert found is not None
    assert found.bytes == whole.bytes == 2 * found.parameters
    assert found.kept == stored(draftwood.load(tmp_path, dtype="int8").model)


def quantised(directory: Path) -> str:
    """A checkpoint whose configuration says that it is quantised."""
    path = save_tiny(directory)
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def test_a_quantised_checkpoint_takes_what_its_files_take(tmp_path: Path) -> None:
    name = quantised(tmp_path)
    files = sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    found = weights_of(name, "auto", CPU)
    assert found is not None
    assert found == Weights(found.parameters, files, files, "gptq")
    finding = fit_finding(found, 1000, name, CPU)
    assert "in the files of the checkpoint (gptq), and only 1 KB are free" in finding.text
    assert not any("bfloat16" in each.command for each in finding.advice)
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    assert weights_of(name, "auto", CPU) is None


def test_files_of_a_model_by_its_id_are_looked_for_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        weights, "try_to_load_from_cache", lambda name, _: str(tmp_path / "config.json")
    )
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    assert weights._bytes_of_files("someone/model") == 4
    monkeypatch.setattr(weights, "try_to_load_from_cache", lambda name, _: None)
    assert weights._bytes_of_files("someone/model") is None


def test_weights_of_what_is_no_model_are_unknown(tmp_path: Path) -> None:
    assert weights_of(str(tmp_path), "auto", CPU) is None


def test_weights_must_fit() -> None:
    given = Weights(135_000_000, 540_000_000, 540_000_000)
    assert fit_finding(given, None, "m", CPU).state == "ok"
    assert fit_finding(given, 540_000_000, "m", CPU).state == "ok"
    found = fit_finding(given, 500_000_000, "m", CPU)
    assert found.state == "failed"
    assert "only 500 MB are free" in found.text
    assert found.advice[0].command == "draftwood doctor m --dtype bfloat16"
    assert all(each.command for each in found.advice)
    on_a_gpu = fit_finding(given, 500_000_000, "m", torch.device("cuda"))
    assert "nvidia-smi" in [each.command for each in on_a_gpu.advice]


def test_int8_must_fit_before_it_is_made() -> None:
    given = Weights(100, 200, 120)
    assert "200 B until they are quantised to 120 B" in fit_finding(given, 300, "m", CPU).text
    found = fit_finding(given, 150, "m", CPU)
    assert found.state == "failed"
    assert not any("--dtype" in each.command for each in found.advice)
