"""A host with a model and given step costs."""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any, TypeVar, cast

from transformers import PreTrainedTokenizerBase

from draftwood.costs.curve import StepCosts
from draftwood.costs.fixed import priced
from draftwood.engine.host import ModelHost
from draftwood.engine.model_free_host import kept
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.file import digest
from draftwood.lab.replay.recording import Recording
from draftwood.models import Loaded
from draftwood.protocols import Learnt, Target
from draftwood.runner.attach import attach

T = TypeVar("T")


class PricedHost(ModelHost):
    """A host with given step costs instead of measured ones.

    Args:
        target: the target.
        tokenizer: the target's.
        costs: step costs.
    """

    def __init__(
        self, target: Target, tokenizer: PreTrainedTokenizerBase, costs: StepCosts
    ) -> None:
        super().__init__(target, tokenizer)
        self._costs = costs
        self._learnt: dict[Hashable, Any] = {}

    def priced(self, costs: StepCosts) -> "PricedHost":
        """A host with other step costs that shares everything else."""
        other = copy(self)
        other._costs = costs
        return other

    def having(self, learnt: dict[Hashable, Any]) -> "PricedHost":
        """A host with these objects that learn from steps, which shares everything else."""
        other = copy(self)
        other._learnt = learnt
        return other

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """The given costs if ``key`` asks for step costs, else the shared object."""
        if isinstance(key, Learnt):
            return kept(self._learnt, key, make)
        found = priced(key, self._costs)
        return super().share(key, make) if found is None else cast(T, found)


def recorded_host(
    loaded: Loaded, name: str, recordings: Sequence[Recording], costs: StepCosts
) -> PricedHost:
    """A host with the model of some recordings, which is attached.

    Args:
        loaded: the model.
        name: that it was loaded by.
        recordings: of this model.
        costs: step costs.

    Raises:
        DraftwoodError: it has other weights than a recording's.
    """
    found = digest(loaded.model)
    for recording in recordings:
        if recording.model.digest != found:
            raise DraftwoodError(
                f"{name!r} has other weights than the recorded {recording.model.name!r}: "
                "give the recorded model"
            )
    return PricedHost(attach(loaded.model), loaded.tokenizer, costs)
