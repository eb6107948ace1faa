"""Recordings and the model that they were made of."""

from collections.abc import Sequence
from pathlib import Path

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


def repeated(recording: Recording) -> float:
    """The share of the answers' token 8-grams that occurred earlier in the same answer."""
    texts = (text for prompt in recording.prompts for text in prompt.texts)
    return pooled(repeats(text.tokens) for text in texts).share


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
