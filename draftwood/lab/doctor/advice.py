"""What would make a model decode faster on a machine, beyond what its findings say."""

from collections.abc import Iterator

import torch

from draftwood.lab.doctor.finding import Advice, Finding, in_commands
from draftwood.models.loading import INT8
from draftwood.protocols import TargetInfo

_SMALL = 20_000_000
"""Parameters up to which a step is mostly Python's and torch's own time, on a CPU."""


def advice_finding(info: TargetInfo, parameters: int, name: str, dtype: str) -> Finding:
    """What would raise the speed of a model, each with the command that tries it.

    Args:
        info: of the attached model.
        parameters: their number.
        name: the model's, for commands.
        dtype: the number format that was asked for.
    """
    found = tuple(_advice(info, parameters, name, dtype))
    return Finding("further", "what else may raise the speed", "note", found)


def _advice(info: TargetInfo, parameters: int, name: str, dtype: str) -> Iterator[Advice]:
    model = in_commands(name, dtype)
    bench = f"draftwood bench --model {model} --prompts FILE"
    if info.dtype == torch.float32 and dtype != INT8:
        yield Advice(
            "bfloat16 halves the bytes that a step reads; its answers differ",
            f"draftwood doctor {name} --dtype bfloat16",
        )
    if info.device.type == "cpu" and parameters <= _SMALL:
        yield Advice("llama.cpp may be faster for a model so small", f"{bench} --peers")
    yield Advice(
        "counts of what this model accepts, in place of another model's",
        f"draftwood calibrate FILE --model {model} --prompts PROMPTS",
    )
    yield Advice(
        "the best setting of each method on your prompts",
        f"draftwood search FILE --model {model} --prompts PROMPTS",
    )
