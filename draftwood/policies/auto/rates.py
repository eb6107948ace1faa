"""The token weights of a batch.

A token's weight is the time that it saves. For each token more, a request that commits ``pace``
tokens a step needs 1 / pace steps fewer. A step without that request is shorter by the request's
part of the step. The part is small while other requests go on, because their forward reads the
weights anyway. It is the whole step for the last request. So tokens of a request that is ahead of
the others weigh little, and tokens of the slowest request weigh much.

While other requests are queued, a free place in the batch is taken at once, and all places have the
same part of the step.
"""

from collections.abc import Sequence

from draftwood.protocols import RequestLoad

_SURE = 4.0
"""A request with twice as many steps left as another one is 2 ** 4 times as likely to be the last
one."""


def token_weights(loads: Sequence[RequestLoad], alone: float, *, queued: bool) -> list[float]:
    """Token weights: batch time saved by one more accepted token of each request.

    They are relative to the batch mean: their mean, weighted by pace, is 1.

    Args:
        loads: of the step's requests.
        alone: seconds of a plain step of one request, over one of the batch.
        queued: whether other requests wait.
    """
    others = len(loads) - 1
    if not others:
        return [1.0]
    steps = [1.0 if queued else load.left / load.pace for load in loads]
    most = max(steps)
    late = [(each / most) ** _SURE for each in steps]
    # Probability of each to be the last one; the others leave a batch that is smaller by one.
    all_late = sum(late)
    last = [each / all_late for each in late]
    parts = [alone * p + (1.0 - alone) * (1.0 - p) / others for p in last]
    pace = sum(load.pace for load in loads)
    return [part * pace / load.pace for part, load in zip(parts, loads, strict=True)]
