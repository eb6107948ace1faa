"""Loads a model and its tokenizer by name, path or hub id, with errors a user can act on."""

import logging
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from draftwood.endings import eos_of
from draftwood.errors import DraftwoodError

logger = logging.getLogger(__name__)

EMBEDDED = {"embedded": "target", "embedded-draft": "draft"}
HEADS = {"embedded-eagle3": "eagle3"}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in evaluation mode, its tokenizer, and the token ids that end a sequence."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    eos: frozenset[int]


def location(name: str) -> str:
    """Where ``name`` is loaded from: the shipped weights for ``embedded``, else ``name`` itself."""
    shipped = (EMBEDDED | HEADS).get(name)
    return str(files("draftwood") / "assets" / shipped) if shipped else name


def load(
    name: str = "embedded",
    *,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Loaded:
    """Load a causal language model.

    Args:
        name: ``"embedded"``, ``"embedded-draft"``, a directory, or a hub id.
        dtype: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``: the checkpoint's, but
            float32 for the embedded models on a CPU.
        device: a torch device, or ``"auto"``: CUDA where there is one, else the CPU.
        trust_remote_code: run code that comes with the checkpoint.

    Raises:
        DraftwoodError: there is no such model, it is not a causal language model, or the dtype
            or device is unknown.
    """
    if dtype != "auto" and dtype not in DTYPES:
        raise DraftwoodError(f"unknown dtype {dtype!r}: choose auto, {', '.join(DTYPES)}")
    place = _device(device)
    where = location(name)
    try:
        config = AutoConfig.from_pretrained(where, trust_remote_code=trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=trust_remote_code)
        model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
            where,
            config=config,
            dtype=_dtype(name, dtype, place),
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        hint = "" if Path(where).is_dir() else " (no such directory here; a hub id needs a network)"
        raise DraftwoodError(f"cannot load model {name!r}{hint}: {reason}") from error
    model.to(place).eval()
    pretrained = cast(PreTrainedModel, model)
    return Loaded(name, pretrained, tokenizer, eos_of(pretrained, tokenizer))


def embedded() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The small model that ships with Draftwood, and its tokenizer; nothing is downloaded."""
    loaded = load("embedded")
    return loaded.model, loaded.tokenizer


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DraftwoodError(f"device {name!r} cannot be used here: {error}") from error
    return device


def _dtype(name: str, dtype: str, device: torch.device) -> torch.dtype | str:
    if dtype != "auto":
        return DTYPES[dtype]
    if name in EMBEDDED and device.type == "cpu":
        return torch.float32
    return "auto"
