"""Recordings and the model that they were made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftwood import models
from draftwood.costs.curve import StepCosts
from draftwood.lab.loops import pooled, repeats
from draftwood.lab.replay.file import read
from draftwood.lab.replay.hosts import PricedHost, recorded_host
from draftwood.lab.replay.recording import Recording


def facts(recording: Recording) -> dict[str, str]:
    """The recorded model, for the provenance of a result."""
    model = recording.model
    return {"name": model.name, "dtype": model.dtype, "digest": model.digest}


def answers(recording: Recording) -> dict[str, Any]:
    """What was recorded, for the provenance of a result.

    ``repeated_8grams`` is the share of the answers' token 8-grams that occurred earlier in the same
    answer.
    """
    settings = recording.settings
    texts = (text for prompt in recording.prompts for text in prompt.texts)
    return {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "chat": settings.chat,
        "max_new_tokens": settings.max_new_tokens,
        "prompts": len(recording.prompts),
        "repeated_8grams": pooled(repeats(text.tokens) for text in texts).share,
    }


def answers_by_name(
    paths: Sequence[Path], recordings: Sequence[Recording]
) -> dict[str, dict[str, Any]]:
    """What was recorded in each file, by the file's name without its ending."""
    return {path.stem: answers(each) for path, each in zip(paths, recordings, strict=True)}


def recorded(
    paths: Sequence[Path], model: str, costs: StepCosts
) -> tuple[list[Recording], PricedHost]:
    """The recordings, and their model on a host with these costs, in their number format.

    Raises:
        DraftwoodError: the model has other weights than a recording's.
    """
    recordings = [read(path) for path in paths]
    loaded = models.load(model, dtype=recordings[0].model.dtype, device="cpu")
    return recordings, recorded_host(loaded, model, recordings, costs)
