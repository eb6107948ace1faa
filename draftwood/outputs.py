"""A draft model's output ids beside the tokens of the target that it drafts for.

A draft model may yield fewer tokens than its target has, as an EAGLE-3 head does, and rows of its
table may mean nothing to the target. Knows no queries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols import Rows, TargetInfo


class Outputs:
    """What a draft model's outputs mean to its target.

    Args:
        to_target: int64 ``[Vd]``: the target's token of each output, or -1 where it has none.
        target: what is drafted for; it has V tokens.

    Attributes:
        to_target: as given.
        of_token: int64 ``[V]``: the output that yields each token, or -1 if none does.
        void: int64: the outputs that mean nothing to the target, ascending.

    Raises:
        DraftwoodError: an output means a token that the target lacks, or two mean the same one,
            which would be drawn twice where once is meant.
    """

    def __init__(self, to_target: NDArray[np.int64], target: TargetInfo) -> None:
        self.to_target = to_target
        self._shape, self._device = target.vocab_size, target.device
        outputs = np.flatnonzero(to_target >= 0)
        tokens = to_target[outputs]
        most = int(tokens.max(initial=-1))
        if most >= target.vocab_size:
            raise DraftwoodError(
                f"the draft model yields token {most}, but the target has {target.vocab_size} "
                "tokens; use a draft model that was made for this target"
            )
        counts = np.bincount(tokens, minlength=1)
        if counts.max() > 1:
            raise DraftwoodError(
                f"two outputs of the draft model mean token {int(counts.argmax())}; "
                "use a draft model that yields every token once"
            )
        self.void = np.flatnonzero(to_target < 0)
        self.of_token = np.full(target.vocab_size, -1, dtype=np.int64)
        self.of_token[tokens] = outputs
        self._from: slice | torch.Tensor
        self._to: slice | torch.Tensor
        order = np.arange(len(outputs))
        self._equal = False
        if np.array_equal(outputs, order) and np.array_equal(tokens, order):
            # Equal ids, apart from the ends: a copy instead of a scatter.
            self._from = self._to = slice(len(outputs))
            self._equal = len(outputs) == len(to_target) == target.vocab_size
        else:
            self._from = torch.from_numpy(outputs).to(target.device)
            self._to = torch.from_numpy(tokens).to(target.device)

    @torch.inference_mode()
    def meaningful(self, rows: Rows, k: int) -> Rows:
        """Rows of logits without the outputs that mean nothing to the target.

        These are masked in place, before anything is ranked or drawn, so that what is left is a
        distribution over the target's tokens.

        Args:
            rows: logits ``[n, Vd]``; nothing else of them is used but ``features``.
            k: how many best outputs of each row to hand over.
        """
        logits = rows.logits
        logits[:, torch.from_numpy(self.void).to(logits.device)] = -torch.inf
        top = torch.softmax(logits.float(), dim=-1).topk(min(k, logits.shape[1]))
        # HAND-OVER: n * k numbers.
        outputs, shares = top.indices.cpu().numpy(), top.values.cpu().numpy()
        return replace(rows, top_tokens=outputs, top_probs=shares)

    def of(self, tokens: Iterable[int]) -> NDArray[np.int64]:
        """The outputs that yield some of the target's tokens, leaving out those that none does."""
        found = self.of_token[np.fromiter(tokens, dtype=np.int64)]
        return found[found >= 0]

    def over_target(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Rows ``[Vd]`` over outputs as ``[n, V]`` over tokens, 0 elsewhere.

        The numbers are the same, not rounded anew; they lie on the target's device, and may be the
        very ones that were given.
        """
        if not rows:
            return torch.zeros((0, self._shape), device=self._device)
        given = rows[0][None] if len(rows) == 1 else torch.stack(tuple(rows))
        given = given.to(self._device)
        if self._equal:
            return given
        found = torch.zeros((len(rows), self._shape), device=self._device)
        found[:, self._to] = given[:, self._from]
        return found
