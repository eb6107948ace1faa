"""Writes an inflated model as a checkpoint directory, whole or not at all."""

import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable
from draftwood.lab.bench.provenance import versions
from draftwood.lab.inflate.room import SHARD

PROVENANCE, HEAD = "provenance.json", "head"
WHAT = (
    "A cost-shaped target: the function of the source, and so its text and its rates of "
    "acceptance, at the cost of a model of this shape. It is no better a model than its "
    "source, whose licence holds for it."
)


@dataclass(frozen=True, eq=False)
class WrittenHead:
    """An inflated head and how it is stored.

    Attributes:
        head: the head.
        tied: its ``lm_head`` has rows of the target's, and is left out.
    """

    head: Eagle3Head
    tied: bool


def check_place(directory: Path) -> None:
    """Refuse a path at which no new directory can be made.

    Raises:
        DraftwoodError: the path exists, or its parent is missing or read-only.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise DraftwoodError(f"{directory} is a file or a link: name a new directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise DraftwoodError(f"{directory} is not empty: name a new directory")
    check_writable(directory.absolute().with_name(".draftwood"))


def write(
    directory: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    record: Mapping[str, object],
    head: WrittenHead | None = None,
) -> None:
    """Write model, tokenizer, head and provenance to a temporary directory, then rename it.

    Args:
        directory: a path that ``check_place`` accepts.
        model: the inflated model.
        tokenizer: the small model's.
        record: origin and shape, for the directory's ``provenance.json``.
        head: the inflated head, for the directory :data:`HEAD`.

    Raises:
        DraftwoodError: the directory cannot be written; nothing is left behind.
    """
    place = directory.absolute()
    whole = {"what": WHAT, **record, "versions": versions()}
    part = place.parent / f".draftwood-{secrets.token_hex(4)}"
    try:
        part.mkdir()
        model.save_pretrained(part, max_shard_size=SHARD)
        tokenizer.save_pretrained(part)
        if head is not None:
            save_head(head.head, part / HEAD, tied=head.tied)
        (part / PROVENANCE).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
        for file in part.rglob("*.*"):
            # safetensors makes its files readable by their owner only.
            shutil.copymode(part / PROVENANCE, file)
        # Replaces an empty directory, and nothing else.
        part.rename(place)
    except (OSError, ValueError) as error:
        raise DraftwoodError(f"cannot write {directory}: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
