"""What is shipped for a model was made for that model, and is what its provenance says."""

import hashlib
from pathlib import Path

import pytest
import torch

from draftwood import models
from draftwood.drafters.adjacency.table_file import load as load_table
from draftwood.drafters.eagle3.checkpoint import load_head
from draftwood.files import decode, read_json
from draftwood.methods.shipped_models import ASSETS, ShippedModel, shipped_models
from draftwood.policies.auto.calibration_file import load as load_calibration
from draftwood.protocols import Fingerprint, TargetInfo

MOST = 16_000_000
"""Bytes that are shipped for a model whose weights are not."""

MODELS = shipped_models(ASSETS)


def home(model: ShippedModel) -> Path:
    return Path(model.parts["calibration"]).parent


def info(fingerprint: Fingerprint) -> TargetInfo:
    sizes = fingerprint.vocabulary, 4096, fingerprint.layers, fingerprint.width
    return TargetInfo(*sizes, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: home(model).name)
def test_the_parts_fit_the_model(model: ShippedModel) -> None:
    weights = model.fingerprint
    if "head" in model.parts:
        embedding = torch.nn.Embedding(weights.vocabulary, weights.width)
        output = torch.nn.Linear(weights.width, weights.vocabulary, bias=False)
        directory = models.location(model.parts["head"])
        head = load_head(directory, info(weights), embedding, output)
        assert head.config.target_hidden_size == weights.width
    if "table" in model.parts:
        made_for = load_table(Path(model.parts["table"])).facts.fingerprint
        assert made_for is not None
        assert made_for.matches(weights)
    calibration = Path(model.parts["calibration"])
    counted = read_json(calibration).get("model")
    if counted is not None:
        assert decode(Fingerprint, counted).matches(weights)
    assert load_calibration(calibration).counts.keys() == {"greedy", "low", "high"}


def test_the_parts_of_a_chat_model_are_small_and_are_what_their_origin_says() -> None:
    path = ASSETS / "smollm2"
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    assert sum(sizes) <= MOST
    parts = read_json(path / "provenance.json")
    assert parts.keys() == {"head", "table.safetensors", "calibration.json"}
    for part, origin in parts.items():
        assert origin["code"]["dirty"] is False
        for name, digest in origin["sha256"].items():
            file = path / part / name if (path / part).is_dir() else path / name
            assert hashlib.sha256(file.read_bytes()).hexdigest() == digest, file
