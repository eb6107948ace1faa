"""Draft models that read masks: checkpoints as PARD publishes them."""

import json
from pathlib import Path
from typing import Any

from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer


def save_pard(directory: Path, mask: Any, *, key: str = "pard_token", **settings: Any) -> str:
    """A tiny Llama whose ``config.json`` names a mask token; None: it names none."""
    tiny_llama(**settings).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    config = directory / "config.json"
    fields = json.loads(config.read_text()) | ({} if mask is None else {key: mask})
    config.write_text(json.dumps(fields))
    return str(directory)
