"""A trained model or head as a Hugging Face directory, with a record of its origin."""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError

_PROVENANCE = "provenance.json"


def export_model(
    model: LlamaForCausalLM,
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
    directory.mkdir(parents=True, exist_ok=True)
    narrow.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    _write_provenance(provenance, directory)


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
    save_head(narrow.bfloat16(), directory, tied=tied)
    _write_provenance(provenance, directory)


def load_exported(directory: Path, device: torch.device) -> LlamaForCausalLM:
    """Read a model written by `export_model` as float32; DraftwoodError if there is none."""
    if not (directory / "config.json").is_file():
        raise DraftwoodError(f"There is no model in {directory}; train it first.")
    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
    assert isinstance(model, LlamaForCausalLM)
    torch.nn.Module.to(model, device)
    model.train(False)
    return model


def is_finished(directory: Path) -> bool:
    """Whether ``directory`` has a model whose training was completed."""
    path = directory / _PROVENANCE
    return path.is_file() and bool(json.loads(path.read_text(encoding="utf-8"))["finished"])


def _write_provenance(provenance: dict[str, Any], directory: Path) -> None:
    (directory / _PROVENANCE).write_text(
        json.dumps(provenance, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
