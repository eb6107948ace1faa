"""The target's features that a drafter reads of a prompt and of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from draftwood.protocols import Outcome, Prefill, TargetOutput
from draftwood.tree import ROOT

if TYPE_CHECKING:
    import torch


def prompt_features(prefill: Prefill) -> torch.Tensor:
    """Those of all positions of a prompt, ``[n, F]``."""
    return _given(prefill.rows)


def step_features(outcome: Outcome) -> torch.Tensor:
    """Those of the root and the accepted nodes, ``[n, F]``.

    Rows of other requests' nodes may stay alive with them: who keeps many steps copies them. Those
    of nodes that were not accepted do not.
    """
    if outcome.features is not None:
        return outcome.features
    from draftwood.copies import uploaded

    found, nodes = _given(outcome.rows), [ROOT, *outcome.path]
    count = len(nodes)
    if count == len(found):
        return found
    if nodes[-1] == count - 1:  # of the first rows a copy is quicker
        return found[:count].clone()
    [rows] = uploaded([np.array(nodes)], found.device)
    return found[rows]


def _given(rows: TargetOutput) -> torch.Tensor:
    assert rows.features is not None, "the target returns the features of the drafter's taps"
    return rows.features
