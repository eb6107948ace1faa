"""Step costs from a file, or estimated from a GPU's data sheet and the models' shapes."""

from collections.abc import Iterable
from pathlib import Path

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.roofline import GPUS, expected, workload
from draftwood.errors import DraftwoodError
from draftwood.files import read_json
from draftwood.lab.inflate.shapes import preset

VOCABULARY = 128256
"""Vocabulary size of estimated models: that of Llama 3."""

STEP, NODE = 4e-4, 1e-5
"""Seconds per step and per drafted node outside forwards, for estimated costs."""


def read_costs(path: Path) -> StepCosts:
    """Read the file of ``draftwood tune --json``, or bare step costs.

    Raises:
        DraftwoodError: the file cannot be read, or has another content.
    """
    found = read_json(path)
    if isinstance(found, dict) and "costs" in found:
        found = found["costs"]
    try:
        return StepCosts.from_json(found)
    except DraftwoodError as error:
        raise DraftwoodError(f"{path}: {error}") from error


def expected_costs(
    gpu: str, shape: str, draft_shape: str | None = None, sources: Iterable[str] = ()
) -> StepCosts:
    """Step costs estimated from data sheets.

    Args:
        gpu: short name of a GPU.
        shape: name of the target's shape.
        draft_shape: name of the draft models' shape; None: their costs are unknown.
        sources: source names of drafters with a model.

    Raises:
        DraftwoodError: there is no such GPU or shape.
    """
    if gpu not in GPUS:
        raise DraftwoodError(f"no GPU is called {gpu!r}: choose {', '.join(GPUS)}")

    def curve(name: str) -> Curve:
        return expected(GPUS[gpu], workload(preset(name), VOCABULARY))

    drafters = {} if draft_shape is None else dict.fromkeys(sources, curve(draft_shape))
    return StepCosts(curve(shape), drafters, fixed=STEP, node=NODE)


def assumed_costs() -> StepCosts:
    """Step costs if none are known: a node costs 1 % of a plain step."""
    return StepCosts(Curve((1, 101), (1.0, 2.0)))
