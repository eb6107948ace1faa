"""The common part of drafters with a model: a draft model, or a head on the target's features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftwood.protocols import (
    Candidates,
    Drafter,
    DraftModel,
    Expand,
    Mask,
    Needs,
    TargetInfo,
    Translation,
)

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._rollout.topk import Place


class RolloutDrafter(Drafter):
    """Proposes a model's likeliest tokens, or samples.

    Args:
        model: runs the trees.
        to_target: int64 ``[Vd]``, the target's id of each output, -1 if it has none.
        target: the target.
        readable: number of the target's ids that the model can read; higher ids become the last.
        limit: longest sequence, in tokens, that the model can draft for.
        project: the target's features to the vectors that the model takes, if it does.
        translation: what the model reads, if its tokens are not the target's.

    Attributes:
        to_target: as given.
    """

    def __init__(
        self,
        model: DraftModel,
        to_target: NDArray[np.int64],
        target: TargetInfo,
        readable: int,
        limit: int,
        project: Callable[[torch.Tensor], torch.Tensor] | None = None,
        translation: Translation | None = None,
    ) -> None:
        # Here, so that settings can be listed without torch.
        from draftwood.drafters._rollout.reading import SameIds
        from draftwood.drafters._rollout.rollout import DraftRollout
        from draftwood.drafters._rollout.vocabulary import VocabularyMap

        self._model = model
        self.to_target = to_target
        vocabulary = VocabularyMap(to_target, target)
        reader = translation or SameIds(readable)
        self._rollout = DraftRollout(model, vocabulary, reader, limit, project)

    @property
    def forwards(self) -> int:
        """Forward passes over drafted trees, prompts not counted."""
        return self._rollout.forwards

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in the model's cache."""
        return self._model.info.token_bytes

    @property
    def slot_bytes(self) -> int:
        """Bytes of a request's recurrent states, and of what is kept of tokens read with a tree."""
        return self._rollout.slot_bytes

    @property
    def node_bytes(self) -> int:
        """Bytes that recurrent layers keep of a node."""
        return self._model.info.node_bytes

    def read_in_pieces(self) -> None:
        """From now on, read long backlogs in pieces while several requests run."""
        self._rollout.in_pieces = True

    def allocate(self, tokens: int) -> None:
        """Make the pool of the model's cache at once."""
        self._model.allocate(tokens)

    def trim(self) -> None:
        """Give back the memory of the model's cache."""
        self._model.trim()

    def backlog(self, slot: int) -> int:
        """Number of committed tokens that the model has not read, in its own tokens."""
        return self._rollout.backlog(slot)

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._rollout.release(slot)

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """The distributions that this step's sampled children were drawn from."""
        return self._rollout.proposals(slot, q_rows)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """``k`` tokens after each node, with one forward for all new nodes.

        A model that takes its own output at the parent has one forward per generation of nodes.

        Raises:
            DraftwoodError: a query for samples has no noise, or a temperature is not above 0.
        """
        return self._rollout.expand(slots, queries)

    def expand_masks(
        self, slots: Sequence[int], mask: Mask, most: int, needs: Needs
    ) -> list[list[Place]]:
        """See :meth:`draftwood.drafters._rollout.rollout.DraftRollout.expand_masks`."""
        return self._rollout.expand_masks(slots, mask, most, needs)
