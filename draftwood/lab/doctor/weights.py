"""The weights of a model before it is loaded: how much memory they take, and whether that is free.

Loading with ``int8`` loads the checkpoint in its own number format first, and quantises its linears
then. A checkpoint that is quantised takes about as much as its files, where nothing is unpacked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from draftwood.engine.memory import readable
from draftwood.lab.doctor.finding import Advice, Finding, doctor_command
from draftwood.models import location
from draftwood.models.loading import INT8, dtype_for


@dataclass(frozen=True)
class Weights:
    """The weights of a model before it is loaded.

    Attributes:
        parameters: their number.
        bytes: that loading them takes.
        kept: bytes of them afterwards.
        quantised: how the checkpoint is quantised, by its configuration; empty: it is not.
    """

    parameters: int
    bytes: int
    kept: int
    quantised: str = ""


def weights_of(
    name: str, dtype: str, device: torch.device, *, trust_remote_code: bool = False
) -> Weights | None:
    """The weights of a model, from its configuration and the sizes of its files.

    None if these do not tell, as of a quantised checkpoint that is not downloaded yet.

    Args:
        name: what :func:`draftwood.models.load` takes.
        dtype: as for :func:`draftwood.models.load`.
        device: where it will be.
        trust_remote_code: run code that comes with the checkpoint.
    """
    made: Any = AutoModelForCausalLM  # its methods have no types
    try:
        where = location(name)
        config: Any = AutoConfig.from_pretrained(where, trust_remote_code=trust_remote_code)
        with torch.device("meta"):
            model = made.from_config(config, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, AttributeError):
        return None  # loading it tells what is wrong
    parameters = sum(each.numel() for each in model.parameters())
    quantised = _quantisation(config)
    if quantised:
        size = _bytes_of_files(where)
        return None if size is None else Weights(parameters, size, size, quantised)
    own = dtype_for(name, dtype, device)
    if not isinstance(own, torch.dtype):
        own = getattr(config, "dtype", None) or torch.float32
    whole = parameters * own.itemsize
    saved = _saved_by_int8(model, own.itemsize) if dtype == INT8 else 0
    return Weights(parameters, whole, whole - saved)


def _quantisation(config: Any) -> str:
    """How a checkpoint is quantised; empty: it is not."""
    found = getattr(config, "quantization_config", None)
    if found is None:
        return ""
    named = found if isinstance(found, dict) else vars(found)
    method = named.get("quant_method") or "quantised"
    return str(getattr(method, "value", method))


def _bytes_of_files(where: str) -> int | None:
    """Bytes of the files of weights that are on this machine; None without any."""
    folder = Path(where)
    if not folder.is_dir():
        known = try_to_load_from_cache(where, "config.json")
        if not isinstance(known, str):
            return None
        folder = Path(known).parent
    sizes = [file.stat().st_size for file in folder.glob("*.safetensors")]
    return sum(sizes) or None


def _saved_by_int8(model: nn.Module, size: int) -> int:
    """Bytes that are given back when linears get an int8 for each weight, and a float32 a row.

    An embedding keeps its weights, so that an output layer that shares them takes more than before.

    Args:
        model: before it is quantised.
        size: bytes of a weight.
    """
    modules = list(model.modules())
    kept = {id(each.weight) for each in modules if isinstance(each, nn.Embedding)}
    linears = {id(each.weight): each.weight for each in modules if isinstance(each, nn.Linear)}
    before = sum(each.numel() * size for key, each in linears.items() if key not in kept)
    after = sum(each.numel() + 4 * len(each) for each in linears.values())
    return before - after


def fit_finding(weights: Weights, free: int | None, model: str, device: torch.device) -> Finding:
    """Whether the weights fit into the memory that is free.

    Args:
        weights: of the model.
        free: bytes; None: unknown.
        model: its name, for commands.
        device: where it will be.
    """
    text = f"{weights.parameters / 1e6:,.0f} M parameters, {readable(weights.bytes)}"
    if weights.quantised:
        text += f" in the files of the checkpoint ({weights.quantised})"
    elif weights.kept < weights.bytes:
        text += f" until they are quantised to {readable(weights.kept)}"
    if free is None or weights.bytes <= free:
        return Finding("weights", text)
    text += f", and only {readable(free)} are free"
    return Finding("weights", text, "failed", tuple(_advice(weights, model, device)))


def _advice(weights: Weights, model: str, device: torch.device) -> Iterator[Advice]:
    if not weights.quantised and weights.bytes > 2 * weights.parameters:
        command = doctor_command(model, "--dtype bfloat16")
        yield Advice("bfloat16 takes half of it", command)
    others = "nvidia-smi" if device.type == "cuda" else "ps -eo pid,rss,args --sort=-rss | head"
    yield Advice("end other programs; these have most", others)
    yield Advice("take a smaller model", doctor_command("SMALLER"))
