"""The token weights of a batch.

A token's weight is the time that it saves. For each token more, a request that commits ``pace``
tokens a step needs 1 / pace steps fewer, and all requests have the same part of a step. So a token
of a slow request weighs more than one of a fast request.

Which request will end last, with the batch waiting for it, is not considered: how long an answer
gets and how fast it will go on are known too badly. Trees for the request that seemed to be the
last one left the others' copies unused, and cost up to a quarter of the speed (docs/LOG.md).
"""

from collections.abc import Sequence

from draftwood.protocols import RequestLoad


def token_weights(loads: Sequence[RequestLoad]) -> list[float]:
    """Token weights: batch time saved by one more accepted token of each request.

    They are relative to the batch mean: their mean, weighted by pace, is 1.

    Args:
        loads: of the step's requests.
    """
    mean = sum(load.pace for load in loads) / len(loads)
    return [mean / load.pace for load in loads]
