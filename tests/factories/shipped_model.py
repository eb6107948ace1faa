"""Shipped parts of a tiny model, in a directory like ``draftwood/assets``."""

import json
from pathlib import Path

from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.files import encode
from draftwood.models import fingerprint_of, vocabulary_digest
from draftwood.policies.auto.calibration import Calibration, Prior
from draftwood.policies.auto.calibration_file import save
from tests.factories.eagle3_heads import tiny_config
from tests.factories.tiny_llama import VOCAB, tiny_llama, tiny_tokenizer

NAME = "the tiny model"
COUNTS: dict[str, Prior] = {"greedy": {(0, 5, 0): (30.0, 29.0)}}


def ship_tiny(assets: Path, directory: str = "tiny") -> Path:
    """Write a manifest of the model ``tiny_llama()``, a head for it and a calibration."""
    home = assets / directory
    config = tiny_config(
        vocab_size=VOCAB,
        draft_vocab_size=VOCAB,
        hidden_size=32,
        target_hidden_size=32,
        taps=(0, 1, 1),
        max_position_embeddings=256,
    )
    head = Eagle3Head(config)
    head.d2t.zero_()
    save_head(head, home / "head")
    save(home / "calibration.json", Calibration(COUNTS))
    manifest = {
        "name": NAME,
        "head": str(home / "head"),
        "vocabulary": vocabulary_digest(tiny_tokenizer()),
        "fingerprint": encode(fingerprint_of(tiny_llama())),
    }
    (home / "model.json").write_text(json.dumps(manifest))
    return home
