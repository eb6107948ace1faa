"""The features that each drafter reads, among those that the target computes for all of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import torch

from draftwood.copies import uploaded
from draftwood.protocols import Outcome, Prefill
from draftwood.tree import ROOT

Event = TypeVar("Event", Prefill, Outcome)


class FeatureShare:
    """A drafter's share of the target's features.

    Args:
        taps: that the target computes, all different.
        own: those of them that the drafter reads, in its order.
    """

    def __init__(self, taps: Sequence[int], own: Sequence[int]) -> None:
        self._count = len(taps)
        self._places = [taps.index(tap) for tap in own]
        self._whole = not own or tuple(own) == tuple(taps)

    def of(self, event: Event) -> Event:
        """A prefill or an outcome with the drafter's features only.

        It is the one given if the drafter reads all features, or none.
        """
        features = event.rows.features
        if self._whole or features is None:
            return event
        own: dict[str, Any] = {"rows": replace(event.rows, features=self._own(features))}
        if isinstance(event, Outcome) and event.features is not None:
            own["features"] = self._own(event.features)
        return replace(event, **own)

    def _own(self, features: torch.Tensor) -> torch.Tensor:
        parts = features.view(len(features), self._count, -1)
        return torch.cat([parts[:, place] for place in self._places], dim=-1)


def picked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes with the features at their roots and paths, all of which are picked at once.

    Each request by itself would ask a GPU for several small copies.
    """
    given = [outcome.rows.features for outcome in outcomes]
    known = [features for features in given if features is not None]
    if len(known) < len(given) or len(given) < 2:
        return [*outcomes]
    starts = accumulate(map(len, known), initial=0)
    nodes = [
        np.array([ROOT, *outcome.path]) + start
        for outcome, start in zip(outcomes, starts, strict=False)
    ]
    with torch.inference_mode():
        [places] = uploaded([np.concatenate(nodes)], known[0].device)
        parts = torch.split(torch.cat(known)[places], [*map(len, nodes)])
    return [replace(each, features=part) for each, part in zip(outcomes, parts, strict=True)]
