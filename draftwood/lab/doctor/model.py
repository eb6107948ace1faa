"""A model on this machine: whether it fits, whether it can branch, and what drafts for it."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from draftwood.engine.engine import Engine
from draftwood.engine.memory import SLACK, readable
from draftwood.errors import DraftwoodError
from draftwood.lab.doctor.finding import Advice, Finding
from draftwood.methods.shipped_models import shipped_for
from draftwood.models import DTYPES, Loaded, location
from draftwood.models.loading import INT8
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner

_REQUEST = 1024
"""Tokens of the requests of which the doctor says how many fit."""


@dataclass(frozen=True)
class Weights:
    """The weights of a model before it is loaded.

    Attributes:
        parameters: their number.
        bytes: that they take.
    """

    parameters: int
    bytes: int


def weights_of(name: str, dtype: str, *, trust_remote_code: bool = False) -> Weights | None:
    """The weights of a model, from its configuration alone; None if that does not tell.

    Args:
        name: what :func:`draftwood.models.load` takes.
        dtype: as for :func:`draftwood.models.load`.
        trust_remote_code: run code that comes with the checkpoint.
    """
    made: Any = AutoModelForCausalLM  # its methods have no types
    try:
        config = AutoConfig.from_pretrained(location(name), trust_remote_code=trust_remote_code)
        with torch.device("meta"):
            model = made.from_config(config, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, AttributeError):
        return None  # loading it tells what is wrong
    own = getattr(config, "dtype", None) or torch.float32
    size = 1 if dtype == INT8 else DTYPES.get(dtype, own).itemsize
    parameters = sum(each.numel() for each in model.parameters())
    return Weights(parameters, parameters * size)


def fit_finding(weights: Weights, free: int | None) -> Finding:
    """Whether the weights fit into the memory that is free."""
    text = f"{weights.parameters / 1e6:,.0f} M parameters, {readable(weights.bytes)}"
    if free is None or weights.bytes <= free:
        return Finding("weights", text)
    help_ = (
        Advice("a smaller number format halves or quarters them", "--dtype bfloat16 or int8"),
        Advice("end other programs, or take a smaller model"),
    )
    return Finding("weights", f"{text}, and only {readable(free)} are free", "failed", help_)


def attached(loaded: Loaded) -> tuple[Runner | None, Finding]:
    """Attach a model, which runs the self-test; the runner is None if it is refused."""
    try:
        runner = attach(loaded.model)
    except DraftwoodError as error:
        help_ = Advice("decode it without Draftwood")
        return None, Finding("trees", f"refused: {error}", "failed", (help_,))
    text = "the self-test passed: logits of a tree are those of its paths"
    return runner, Finding("trees", text)


def room_finding(runner: Runner, free: int | None) -> Finding:
    """How many requests fit into the memory that is free, beside the weights."""
    info = runner.info
    token = max(1, info.token_bytes)
    text = f"{readable(token)} a token for keys and values"
    if info.slot_bytes:
        text += f", {readable(info.slot_bytes)} a request for recurrent states"
    if free is not None:
        slack = 1.0 if runner.block else SLACK
        request = _REQUEST * token * slack + info.slot_bytes
        text += f"; room for {int(free / request):,} requests of {_REQUEST:,} tokens"
    return Finding("requests", text)


def drafts_finding(engine: Engine, model: str) -> Finding:
    """What an engine of ``auto`` drafts with, and what else it could draft with.

    Args:
        engine: with the method ``auto``.
        model: its name, for commands.
    """
    named = {str(spec.model) for spec in engine.method.drafters.values() if spec.model}
    text = ", ".join(["copies of the context", "the target's earlier predictions", *sorted(named)])
    shipped = shipped_for(engine.target.info.fingerprint)
    if shipped is not None:
        parts = ", ".join(sorted(shipped.parts))
        return Finding("drafts", f"{text}; shipped for {shipped.name}: {parts}")
    if named:
        return Finding("drafts", text)
    help_ = (
        Advice(
            "a small model of its family, or a head trained for it, drafts more",
            f"draftwood drafters --fit --model {model} --draft SMALL",
        ),
        Advice(
            "a prepared table holds what the model says after frequent pairs of tokens",
            f"draftwood harvest TABLE --model {model} --text FILE",
        ),
    )
    return Finding("drafts", f"{text}; nothing is shipped for this model", "note", help_)
