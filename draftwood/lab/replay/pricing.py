"""Step costs estimated from a GPU's data sheet and the models' shapes."""

import math
from collections.abc import Iterable

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.roofline import GPUS, expected, head_workload, workload
from draftwood.errors import DraftwoodError
from draftwood.lab.inflate.shapes import preset

VOCABULARY = 128256
"""Vocabulary size of estimated models: that of Llama 3."""

HEAD, DRAFTED = "head", 32_000
"""Shape of an EAGLE-3 head of the target, and the tokens that it drafts."""

STEP, NODE = 4e-4, 1e-5
"""Seconds per step and per drafted node outside forwards, for estimated costs."""


def expected_costs(
    gpu: str, shape: str, draft_shape: str | None = None, sources: Iterable[str] = ()
) -> StepCosts:
    """Step costs estimated from data sheets.

    Args:
        gpu: short name of a GPU.
        shape: name of the target's shape.
        draft_shape: name of the draft models' shape, or ``"head"``: EAGLE-3 heads of the target;
            None: their costs are unknown.
        sources: source names of drafters with a model.

    Raises:
        DraftwoodError: there is no such GPU or shape.
    """
    if gpu not in GPUS:
        raise DraftwoodError(f"no GPU is called {gpu!r}: choose {', '.join(GPUS)}")

    def curve(name: str) -> Curve:
        return expected(GPUS[gpu], workload(preset(name), VOCABULARY))

    target, drafters = curve(shape), dict[str, Curve]()
    if draft_shape == HEAD:
        head = expected(GPUS[gpu], head_workload(preset(shape), DRAFTED))
        drafters = dict.fromkeys(sources, head)
    elif draft_shape is not None:
        drafters = dict.fromkeys(sources, curve(draft_shape))
    return StepCosts(target, drafters, fixed=STEP, node=NODE)


def of_sequence(costs: StepCosts, batch: int, context: int) -> StepCosts:
    """Step costs by the nodes of one sequence, in a batch of sequences like it.

    A method that plans a single tree with them plans for the whole batch: a step takes as long, and
    commits the batch's multiple.

    Args:
        costs: step costs.
        batch: sequences.
        context: cached tokens of each; the result has no further cost of a context.
    """

    def curve(whole: Curve) -> Curve:
        knots = {math.ceil(size / batch) for size in whole.sizes}
        knots |= {max(1, size // batch) for size in whole.sizes}
        # Beyond its end, a curve has the slope of the last half of its sizes.
        end = max(knots)
        sizes = sorted(knots | {end, 2 * end})
        seconds = (whole.seconds(batch * size, batch * context, batch) for size in sizes)
        return Curve(tuple(sizes), tuple(seconds))

    return StepCosts(
        target=curve(costs.target),
        drafters={source: curve(each) for source, each in costs.drafters.items()},
        fixed=costs.fixed + costs.sequence * (batch - 1),
        node=costs.node * batch,
    )


def assumed_costs() -> StepCosts:
    """Step costs if none are known: a node costs 1 % of a plain step."""
    return StepCosts(Curve((1, 101), (1.0, 2.0)))
