"""Weight layouts, chosen once per machine and model and cached on disk.

Timing layouts takes seconds for a large model. Cached choices also keep results reproducible:
timing again in another process may choose other layouts, which round differently.
"""

import logging
from collections.abc import Callable, Sequence

import torch

from draftwood import __version__
from draftwood.costs import cache
from draftwood.costs.busy import watched
from draftwood.costs.progress import working
from draftwood.costs.store import cpu_model
from draftwood.kernels.functions import kernels_version
from draftwood.runner.cpu.layouts import (
    BUCKETS,
    PROMPTS,
    LayoutChoice,
    Weight,
    fastest_layouts,
    layouts,
)

logger = logging.getLogger(__name__)


def cached_layouts(
    weights: Sequence[Weight],
    choose: Callable[[Sequence[Weight]], list[LayoutChoice | None]] = fastest_layouts,
    *,
    fresh: bool = False,
) -> list[LayoutChoice | None]:
    """The layout of each weight, from the cache or chosen now.

    The cache key is the processor, the number of threads, the compiled kernels, the layouts that
    work here, the numbers of rows that are timed and the weights' shapes. A new choice is cached
    unless other processes used the machine meanwhile.

    Args:
        weights: each weight and its bias, in the order of the forward pass.
        choose: chooses if nothing is cached.
        fresh: choose anew and replace the cached choice.
    """
    if not weights:
        return []
    shapes = [_shape(weight) for weight in weights]
    key = {
        "processor": cpu_model(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "draftwood": __version__,
        "kernels": kernels_version(),
        "layouts": [layout.name for layout in layouts(weights)],
        "rows": [*BUCKETS, *PROMPTS],
        "weights": cache.digest(shapes),
    }
    found = None if fresh else _choices(cache.read(cache.LAYOUTS, key), weights)
    if found is None:
        with working("choosing a layout for the weights, once for this machine"), watched() as near:
            found = choose(weights)
        if cache.disturbed(near.others):
            logger.info("layouts are not cached: other processes used too much of the cores")
        else:
            about = f"{key['processor']}, {key['threads']} threads: {len(weights)} weights"
            cache.try_write(cache.LAYOUTS, key, [_plain(choice) for choice in found], about)
    return found


def _shape(weight: Weight) -> tuple[list[int], str, bool]:
    tensor, bias = weight
    return list(tensor.shape), str(tensor.dtype), bias is None


def _plain(choice: LayoutChoice | None) -> list[object] | None:
    return None if choice is None else [choice.layout.name, choice.low, choice.high]


def _choices(found: object, weights: Sequence[Weight]) -> list[LayoutChoice | None] | None:
    """The choices read from a file; None if the content is not as written."""
    usable = {layout.name: layout for layout in layouts(weights)}
    if not isinstance(found, list) or len(found) != len(weights):
        return None
    choices: list[LayoutChoice | None] = []
    for one in found:
        match one:
            case None:
                choices.append(None)
            case [str(name), int(low), int(high)] if name in usable:
                choices.append(LayoutChoice(usable[name], low, high))
            case _:
                return None
    return choices
