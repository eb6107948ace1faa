"""What a token of each request of a batch is worth, in tokens of the usual one.

A token is worth the time that it saves. For each token more a request that commits ``pace`` tokens
a step needs 1 / pace steps fewer, and a step without it is shorter by its part of the step: little
where others go on, as the weights are read for them anyway, and the whole step where it would have
been the last one. So tokens of a request that is ahead of the others are worth little, and those of
the slowest one much.

Where other requests wait, a place in the batch is taken again once it is free, and every place is
worth the same part of the step.
"""

from collections.abc import Sequence

from draftwood.protocols.tuning import Load

_SURE = 4.0
"""A request that has twice as many steps left at its pace as another one is 2 ** 4 times as likely
to be the last one."""


def worths(loads: Sequence[Load], alone: float, *, queued: bool) -> list[float]:
    """By request; their mean, weighted by pace, is 1.

    Args:
        loads: of the step's requests.
        alone: what a plain step of one request takes, over one of the batch.
        queued: whether others wait.
    """
    others = len(loads) - 1
    if not others:
        return [1.0]
    steps = [1.0 if queued else load.left / load.pace for load in loads]
    most = max(steps)
    late = [(each / most) ** _SURE for each in steps]
    # Chance of each to be the last one; the others leave a batch that is smaller by one.
    all_late = sum(late)
    last = [each / all_late for each in late]
    parts = [alone * chance + (1.0 - alone) * (1.0 - chance) / others for chance in last]
    pace = sum(load.pace for load in loads)
    return [part * pace / load.pace for part, load in zip(parts, loads, strict=True)]
