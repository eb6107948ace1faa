"""Writes an inflated model as a checkpoint directory, whole or not at all."""

import json
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.provenance import versions
from draftwood.lab.inflate.model import Comparison
from draftwood.lab.inflate.room import SHARD
from draftwood.lab.inflate.shapes import LlamaShape

PROVENANCE = "provenance.json"


def check_place(directory: Path) -> None:
    """Refuse a path at which no new directory can be made.

    Raises:
        DraftwoodError: the path exists, or its parent is missing or read-only.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise DraftwoodError(f"{directory} is a file or a link: name a new directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise DraftwoodError(f"{directory} is not empty: name a new directory")
    above = directory.absolute().parent
    try:
        with tempfile.TemporaryDirectory(dir=above, prefix=".draftwood-"):
            pass
    except OSError as error:
        raise DraftwoodError(f"cannot write to {above}: {error.strerror}") from error


def provenance(
    *,
    source: str,
    revision: str | None,
    small: LlamaShape,
    large: LlamaShape,
    parameters: int,
    dtype: str,
    seed: int,
    agreement: Comparison | None,
) -> dict[str, object]:
    """Content of the directory's ``provenance.json``.

    Args:
        source: name of the small model.
        revision: its commit, if it comes from a hub.
        small: its shape.
        large: the inflated shape.
        parameters: number of weights; shared weights count once.
        dtype: number format of the written weights.
        seed: seed of the unused weights.
        agreement: result of the check in float32; None if it was skipped.
    """
    return {
        "what": (
            "A cost-shaped target: the function of the source, and so its text and its rates of "
            "acceptance, at the cost of a model of this shape. It is no better a model than its "
            "source, whose licence holds for it."
        ),
        "source": {"name": source, "revision": revision, "shape": asdict(small)},
        "shape": asdict(large),
        "parameters": parameters,
        "dtype": dtype,
        "seed": seed,
        "check": None if agreement is None else {"dtype": "float32", **asdict(agreement)},
        "versions": versions(),
    }


def write(
    directory: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    record: Mapping[str, object],
) -> None:
    """Write model, tokenizer and record to a temporary directory, then rename it.

    Raises:
        DraftwoodError: the directory cannot be written; nothing is left behind.
    """
    place = directory.absolute()
    part = place.parent / f".draftwood-{secrets.token_hex(4)}"
    try:
        part.mkdir()
        model.save_pretrained(part, max_shard_size=SHARD)
        tokenizer.save_pretrained(part)
        (part / PROVENANCE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for file in part.iterdir():
            # safetensors makes its files readable by their owner only.
            shutil.copymode(part / PROVENANCE, file)
        # Replaces an empty directory, and nothing else.
        part.rename(place)
    except (OSError, ValueError) as error:
        raise DraftwoodError(f"cannot write {directory}: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
