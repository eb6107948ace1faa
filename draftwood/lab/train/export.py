"""A trained model or head as a Hugging Face directory, with a record of its origin."""

import copy
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from draftwood.drafters.dflash.checkpoint import save_dflash
from draftwood.drafters.dflash.network import DFlashNetwork
from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.drafters.medusa.checkpoint import save_medusa
from draftwood.drafters.medusa.heads import MedusaHeads
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable, read_json, write_text
from draftwood.lab.train.text_model import TextModel

_PROVENANCE = "provenance.json"


def export_model(
    model: TextModel,
    tokenizer: PreTrainedTokenizerFast,
    provenance: dict[str, Any],
    directory: Path,
    generation: GenerationConfig | None = None,
) -> None:
    """Write ``model`` in bfloat16, its tokenizer and ``provenance.json`` to ``directory``.

    Args:
        model: in any dtype.
        tokenizer: the model's.
        provenance: JSON values.
        directory: created if there is none.
        generation: how it generates; by default, token 0 begins and ends a text.
    """
    narrow = copy.deepcopy(model).bfloat16()
    narrow.config.dtype = torch.bfloat16
    narrow.generation_config = generation or GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=0, eos_token_id=0
    )
    with _whole(directory, provenance) as part:
        narrow.save_pretrained(part)
        tokenizer.save_pretrained(part)


def export_head(
    head: Eagle3Head, provenance: dict[str, Any], directory: Path, *, tied: bool = False
) -> None:
    """Write ``head`` in bfloat16, as EAGLE-3 heads are published, and ``provenance.json``.

    Args:
        head: in any dtype.
        provenance: JSON values.
        directory: created if there is none.
        tied: leave out the output matrix, which is the target's.
    """
    narrow = Eagle3Head(copy.deepcopy(head.config))
    narrow.load_state_dict(head.state_dict())
    with _whole(directory, provenance) as part:
        save_head(narrow.bfloat16(), part, tied=tied)


def export_medusa(heads: MedusaHeads, provenance: dict[str, Any], directory: Path) -> None:
    """Write Medusa heads in bfloat16, without their output, and ``provenance.json``.

    Args:
        heads: in any dtype, with rows of the target's ``lm_head`` as their output.
        provenance: JSON values.
        directory: created if there is none.
    """
    with _whole(directory, provenance) as part:
        save_medusa(copy.deepcopy(heads).bfloat16(), part)


def export_dflash(
    network: DFlashNetwork, provenance: dict[str, Any], directory: Path, *, raw: dict[str, Any]
) -> None:
    """Write a DFlash drafter in bfloat16, without its output, and ``provenance.json``.

    Args:
        network: in any dtype, with rows of the target's ``lm_head`` as its output.
        provenance: JSON values.
        directory: created if there is none.
        raw: the content of ``config.json``.
    """
    with _whole(directory, provenance) as part:
        save_dflash(network, raw, part, torch.bfloat16)


def check_export(directory: Path, name: str) -> None:
    """Refuse a path to which no model can be exported, before it is trained.

    Args:
        directory: to be made, empty, or with an earlier export of the same kind of model.
        name: the kind of model.

    Raises:
        DraftwoodError: it is a file, has files of something else, or no file can be made in it or
            in the first of its parents that exists.
    """
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise DraftwoodError(f"{place} is a file: name another directory")
    check_writable(place / _PROVENANCE)
    if directory.is_dir() and any(directory.iterdir()):
        record = directory / _PROVENANCE
        found = read_json(record) if record.is_file() else None
        if not (isinstance(found, dict) and found.get("model") == name and "recipe" in found):
            raise DraftwoodError(
                f"{directory} has files that 'draftwood train {name}' did not write: name an empty "
                "or new directory with --export"
            )


def load_exported(directory: Path, device: torch.device) -> TextModel:
    """Read a model written by `export_model` as float32; DraftwoodError if there is none."""
    if not (directory / "config.json").is_file():
        raise DraftwoodError(f"There is no model in {directory}; train it first.")
    made: Any = AutoModelForCausalLM
    model: TextModel = made.from_pretrained(directory, dtype=torch.float32)
    torch.nn.Module.to(model, device)
    model.train(False)
    return model


def is_finished(directory: Path) -> bool:
    """Whether ``directory`` has a model whose training was completed."""
    path = directory / _PROVENANCE
    return path.is_file() and bool(json.loads(path.read_text(encoding="utf-8"))["finished"])


@contextmanager
def _whole(directory: Path, provenance: dict[str, Any]) -> Iterator[Path]:
    """A directory to fill, whose files then replace those in ``directory``, its record last."""
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory, prefix=".draftwood-") as name:
        part = Path(name)
        yield part
        # Without a record, a mixture of two models counts as none.
        (directory / _PROVENANCE).unlink(missing_ok=True)
        for file in part.iterdir():
            os.replace(file, directory / file.name)
    write_text(directory / _PROVENANCE, json.dumps(provenance, indent=2, ensure_ascii=False) + "\n")
