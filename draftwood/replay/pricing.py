"""Costs of a step from a file, or as data sheets let one expect of a GPU and shapes of models.

Knows nothing of what is priced.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.roofline import GPUS, expected, workload
from draftwood.errors import DraftwoodError
from draftwood.inflate.shapes import preset

VOCABULARY = 128256
"""Tokens of the models expected of data sheets: those of Llama 3."""

STEP, NODE = 4e-4, 1e-5
"""Seconds a step and a drafted node outside of forwards, where data sheets say nothing."""


def read_costs(path: Path) -> StepCosts:
    """What ``draftwood tune --json`` wrote, or bare step costs.

    Raises:
        DraftwoodError: the file cannot be read, or holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DraftwoodError(f"cannot read costs from {path}: {error}") from error
    if isinstance(found, dict) and "costs" in found:
        found = found["costs"]
    return StepCosts.from_json(found)


def expected_costs(
    gpu: str, shape: str, draft_shape: str | None = None, sources: Iterable[str] = ()
) -> StepCosts:
    """What data sheets let one expect.

    Args:
        gpu: short name of a GPU.
        shape: name of the target's shape.
        draft_shape: the same for drafters with a model; None: their costs are not known.
        sources: names of these drafters.

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
    """What methods that weigh nodes by their cost are told where nothing is known of it: a node is
    1 % of a plain step."""
    return StepCosts(Curve((1, 101), (1.0, 2.0)))


def check_priced(costs: StepCosts, sources: Iterable[str]) -> None:
    """Refuse costs that lack a drafter's.

    Raises:
        DraftwoodError: names it.
    """
    missing = sorted(set(sources) - set(costs.drafters))
    if missing:
        raise DraftwoodError(
            f"costs of drafters {', '.join(missing)} are not known: measure them with "
            "'draftwood tune --draft', or give --draft-shape with --gpu"
        )
