"""The features that each drafter reads, among those that the target computes for all of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from draftwood.protocols import Outcome, Prefill

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
        parts = features.view(len(features), self._count, -1)
        own = torch.cat([parts[:, place] for place in self._places], dim=-1)
        return replace(event, rows=replace(event.rows, features=own))
