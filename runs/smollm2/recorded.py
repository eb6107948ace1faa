"""Recordings and the model that they were made of."""

from collections.abc import Sequence
from pathlib import Path

from draftwood import models
from draftwood.costs.curve import StepCosts
from draftwood.errors import DraftwoodError
from draftwood.lab.loops import pooled, repeats
from draftwood.lab.replay.file import digest, read
from draftwood.lab.replay.hosts import PricedHost
from draftwood.lab.replay.recording import Recording
from draftwood.runner.attach import attach


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
    found = digest(loaded.model)
    for path, recording in zip(paths, recordings, strict=True):
        if recording.model.digest != found:
            raise DraftwoodError(
                f"{path} was recorded of other weights than {model} in "
                f"{recordings[0].model.dtype}: give the recorded model, and recordings of one dtype"
            )
    return recordings, PricedHost(attach(loaded.model), loaded.tokenizer, costs)
