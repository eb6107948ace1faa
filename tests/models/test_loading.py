"""Checkpoints whose files are damaged are refused with a sentence that says what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwood import models
from draftwood.errors import DraftwoodError
from tests.factories.tiny_llama import save_tiny

WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"hidden_size": "x"}, "its config.json is not valid: Field 'hidden_size' expected int"),
    ({"num_attention_heads": None}, "its config.json is not valid: Field 'num_attention_heads'"),
    ({"num_attention_heads": 0}, r"not valid \(integer modulo by zero\): download it again"),
    ({"hidden_act": "swish9"}, r"not valid \('swish9' is missing, or is not known"),
    ({"dtype": "float99"}, r"not valid \(module 'torch' has no attribute 'float99'\)"),
    (
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
        r"not valid \(Missing required keys in `rope_parameters`",
    ),
)


@pytest.mark.parametrize(("changes", "complaint"), WRONG)
def test_values_that_are_not_valid_are_refused(
    changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    config = save_tiny(tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    with pytest.raises(DraftwoodError, match=f"^cannot load model .*{complaint}"):
        models.load(str(tmp_path))


def test_a_generation_config_that_is_no_object_is_refused(tmp_path: Path) -> None:
    (save_tiny(tmp_path) / "generation_config.json").write_text("[]")
    with pytest.raises(DraftwoodError, match=r"cannot load model .* beside its weights is not"):
        models.load(str(tmp_path))


def test_a_vocabulary_size_that_is_no_number_is_refused(tmp_path: Path) -> None:
    config = save_tiny(tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": "x"}))
    with pytest.raises(DraftwoodError, match="not valid: Field 'vocab_size' expected int"):
        models.vocabulary_size(str(tmp_path))
