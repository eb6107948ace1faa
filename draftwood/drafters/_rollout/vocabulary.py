"""The map between a draft model's outputs and the target's tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import downloaded
from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs, TargetInfo, TargetOutput


class VocabularyMap:
    """The map between a draft model's outputs and the target's tokens.

    Args:
        to_target: int64 ``[Vd]``: the target's token of each output, -1 if it has none.
        target: the target, with V tokens.

    Attributes:
        to_target: as given.
        of_token: int64 ``[V]``: the output of each token, -1 if it has none.
        unmapped: int64, the outputs without a token of the target, ascending.

    Raises:
        DraftwoodError: an output maps to a token that the target lacks, or two outputs map to one
            token.
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
                f"two outputs of the draft model map to token {int(counts.argmax())}; "
                "use a draft model that has every token once"
            )
        self.unmapped = np.flatnonzero(to_target < 0)
        self._unmapped: torch.Tensor | None = None
        self._tokens: torch.Tensor | None = None
        self.of_token = np.full(target.vocab_size, -1, dtype=np.int64)
        self.of_token[tokens] = outputs
        self._from: slice | torch.Tensor
        self._to: slice | torch.Tensor
        order = np.arange(len(outputs))
        self._equal = False
        if np.array_equal(outputs, order) and np.array_equal(tokens, order):
            # Equal ids up to the shorter length: a slice instead of a scatter.
            self._from = self._to = slice(len(outputs))
            self._equal = len(outputs) == len(to_target) == target.vocab_size
        else:
            self._from = torch.from_numpy(outputs).to(target.device)
            self._to = torch.from_numpy(tokens).to(target.device)

    def mask(self, logits: torch.Tensor) -> None:
        """Set the logits ``[.., Vd]`` of unmapped outputs to -inf, in place."""
        if self._unmapped is None or self._unmapped.device != logits.device:
            self._unmapped = torch.from_numpy(self.unmapped).to(logits.device)
        logits[..., self._unmapped] = -torch.inf

    @torch.inference_mode()
    def mapped_output(self, rows: TargetOutput, needs: Needs) -> TargetOutput:
        """A forward's output with unmapped outputs masked, and the top-k of the others.

        The logits are masked in place, before anything is ranked or drawn. So q is a distribution
        over the target's tokens.

        Args:
            rows: logits ``[n, Vd]`` and ``features``; its top-k is replaced if it is read.
            needs: what is read of them.
        """
        logits = rows.logits
        self.mask(logits)
        if not needs.host:
            return rows
        top = torch.softmax(logits.float(), dim=-1).topk(min(needs.top_k, logits.shape[1]))
        outputs, shares = downloaded([top.indices, top.values])
        return replace(rows, top_tokens=outputs, top_probs=shares)

    def of_outputs(self, values: torch.Tensor) -> torch.Tensor:
        """Values ``[.., V]`` of the target's tokens as ``[.., Vd]`` of the outputs.

        Those of outputs without a token mean nothing.
        """
        if self._equal:
            return values
        if self._tokens is None or self._tokens.device != values.device:
            self._tokens = torch.from_numpy(np.maximum(self.to_target, 0)).to(values.device)
        return values[..., self._tokens]

    def outputs_of(self, tokens: Iterable[int]) -> NDArray[np.int64]:
        """The outputs of some of the target's tokens; tokens without an output are left out."""
        found = self.of_token[np.fromiter(tokens, dtype=np.int64)]
        return found[found >= 0]

    def target_rows(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Rows ``[Vd]`` over outputs as ``[n, V]`` over the target's tokens, 0 elsewhere.

        The values are unchanged. The result is on the target's device and may share memory with the
        rows given.
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
