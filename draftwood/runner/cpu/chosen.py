"""Weight layouts chosen once for a machine and a model's shapes, and kept.

Timing them takes seconds for a large model; and what is timed anew in every process may come out
otherwise, so that the same text is rounded in two ways. Knows nothing of how layouts are timed.
"""

import logging
from collections.abc import Callable, Sequence

import torch

from draftwood import __version__
from draftwood.costs import cache
from draftwood.costs.busy import watched
from draftwood.costs.progress import working
from draftwood.costs.store import cpu_model
from draftwood.runner.cpu.layouts import (
    BLOCKED,
    TRANSPOSED,
    Choice,
    Weight,
    blocked_works,
    measured,
)

logger = logging.getLogger(__name__)


def remembered(
    weights: Sequence[Weight],
    choose: Callable[[Sequence[Weight]], list[Choice | None]] = measured,
    *,
    fresh: bool = False,
) -> list[Choice | None]:
    """The layout of each weight, as kept for this processor, these shapes and this many threads; or
    as chosen now, and kept if the machine was quiet meanwhile.

    Args:
        weights: each weight and its bias, in the order of the forward pass.
        choose: chooses where nothing is kept.
        fresh: choose anew, whatever is kept.
    """
    if not weights:
        return []
    shapes = [_shape(weight) for weight in weights]
    key = {
        "processor": cpu_model(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "draftwood": __version__,
        "weights": cache.digest(shapes),
    }
    found = None if fresh else _choices(cache.read(cache.LAYOUTS, key), len(weights))
    if found is None:
        with working("choosing a layout for the weights, once for this machine"), watched() as near:
            found = choose(weights)
        if cache.disturbed(near.others):
            logger.info("layouts are not kept: other processes used too much of the cores")
        else:
            about = f"{key['processor']}, {key['threads']} threads: {len(weights)} weights"
            cache.try_write(cache.LAYOUTS, key, [_plain(choice) for choice in found], about)
    return found


def _shape(weight: Weight) -> tuple[list[int], str, bool]:
    tensor, bias = weight
    return list(tensor.shape), str(tensor.dtype), bias is None


def _plain(choice: Choice | None) -> list[object] | None:
    return None if choice is None else [choice.form.name, choice.low, choice.high]


def _choices(found: object, count: int) -> list[Choice | None] | None:
    """The choices that a file holds; None if it does not hold what was written."""
    forms = {form.name: form for form in (TRANSPOSED, *([BLOCKED] if blocked_works() else []))}
    if not isinstance(found, list) or len(found) != count:
        return None
    choices: list[Choice | None] = []
    for one in found:
        match one:
            case None:
                choices.append(None)
            case [str(name), int(low), int(high)] if name in forms:
                choices.append(Choice(forms[name], low, high))
            case _:
                return None
    return choices
