"""The usual end of a list of logits processors: temperature, top-k, top-p and min-p, in this order.

Code that draws a token without a tensor of scores knows these by their numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import LogitsProcessor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from draftwood.sampling.top_p import TopP


@dataclass(frozen=True)
class Filters:
    """Temperature, top-k, top-p and min-p; the defaults change nothing.

    Attributes:
        temperature: divides the scores.
        top_k: keep the k largest scores (0: all).
        top_p: keep the likeliest tokens with at least this probability together.
        min_p: drop tokens below this share of the largest probability.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


def split_filters(
    processors: Sequence[LogitsProcessor],
) -> tuple[tuple[LogitsProcessor, ...], Filters]:
    """The processors before the filters at the end of a list, and the filters."""
    found, place = Filters(), len(_ORDER)
    left = list(processors)
    while left:
        setting = _setting(left[-1])
        if setting is None or _ORDER.index(setting[0]) >= place:
            break
        place = _ORDER.index(setting[0])
        found = replace(found, **{setting[0]: setting[1]})
        left.pop()
    return tuple(left), found


_ORDER = ("temperature", "top_k", "top_p", "min_p")


def _setting(processor: Any) -> tuple[str, Any] | None:
    """The setting of a filter and its value; None for other processors and unusual options."""
    kind = type(processor)
    if kind is TemperatureLogitsWarper:
        return "temperature", processor.temperature
    usual = getattr(processor, "filter_value", None) == -math.inf
    if kind is TopKLogitsWarper and usual:
        return "top_k", processor.top_k
    if kind is TopP and usual:
        return "top_p", processor.top_p
    one = getattr(processor, "min_tokens_to_keep", None) == 1
    if kind is TopPLogitsWarper and usual and one:
        return "top_p", processor.top_p
    if kind is MinPLogitsWarper and usual and one:
        return "min_p", processor.min_p
    return None
