"""Step costs at which drafting pays, whatever this machine does at the moment."""

from collections.abc import Mapping

import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fixed import FixedCosts
from draftwood.policies.auto import policy
from draftwood.protocols import Built, Host, Policy


def drafting_pays(patch: pytest.MonkeyPatch) -> None:
    """Have ``auto`` draft as where a node, and a level of a draft model, cost next to nothing."""

    def recall(host: Host, drafters: Mapping[str, Built], _: Policy) -> FixedCosts:
        level = Curve((1, 8), (0.02, 0.021))
        return FixedCosts(StepCosts(Curve((1, 64), (1.0, 1.1)), dict.fromkeys(drafters, level)))

    patch.setattr(policy, "recall_or_measure", recall)
