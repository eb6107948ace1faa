"""A target of five tokens, and a draft model that says what it says, less surely."""

import dataclasses
from typing import Any

from draftwood.protocols import DraftDtype, DraftModel, Translation
from tests.factories.markov_target import FakeHost, MarkovTarget


def target() -> MarkovTarget:
    """The target, the same in every call."""
    return MarkovTarget(5, seed=3, sharpness=1.0)


@dataclasses.dataclass
class SimilarDraft(FakeHost):
    """Its draft model has the target's logits over ``divisor``."""

    divisor: int = dataclasses.field(kw_only=True)

    def model(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftModel, Translation | None]:
        found = target()
        found.table = found.table / self.divisor
        return found, None
