"""The features that each drafter reads, among those that the target computes for all of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

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
    nodes = [np.array([ROOT, *outcome.path]) for outcome in outcomes]
    with torch.inference_mode():
        parts = torch.split(rows_at(nodes, known), [*map(len, nodes)])
    return [replace(each, features=part) for each, part in zip(outcomes, parts, strict=True)]


def rows_at(nodes: Sequence[NDArray[np.int64]], given: list[torch.Tensor]) -> torch.Tensor:
    """A copy of the rows at some nodes of each tensor, all of which are picked at once.

    Args:
        nodes: of each tensor, ascending and different.
        given: tensors ``[n, F]``.
    """
    starts = accumulate(map(len, given), initial=0)
    places = np.concatenate([own + start for own, start in zip(nodes, starts, strict=False)])
    every = torch.cat(given)
    if len(places) == len(every):
        return every
    [there] = uploaded([places], every.device)
    return every[there]
