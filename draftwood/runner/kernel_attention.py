"""Attention of one forward by a kernel, over the whole cache and without masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from draftwood.errors import DraftwoodError
from draftwood.kernels.gpu import AttendTrees, Seen

if TYPE_CHECKING:
    from draftwood.runner.masks import LayerKind


@dataclass(frozen=True, eq=False)
class KernelAttention:
    """The attention of one forward.

    Attributes:
        seen: the keys that each query sees.
        kinds: of layers, in the order of their stand-ins for masks.
        kernel: computes it.
    """

    seen: Seen
    kinds: Sequence[LayerKind]
    kernel: AttendTrees

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attention output ``[1, n, heads, d]``.

        Args:
            query: ``[1, heads, n, d]``, of all sequences behind one another.
            key: ``[1, kv_heads, entries, d]``, the whole cache.
            value: as ``key``.
            mask: stands in for the mask of the layer's kind.
            scaling: of the scores; None: ``d ** -0.5``.
            softcap: c; scores become ``c * tanh(scores / c)``.
            sinks: ``[heads]``, a further score in the softmax that has no value.
        """
        place = mask.shape[-1] - 1
        if place >= len(self.kinds):
            raise DraftwoodError("the model changes the masks of its layers, which no kernel reads")
        kind = self.kinds[place]
        queries = query[0].transpose(0, 1)
        return self.kernel(
            queries if queries.stride(-1) == 1 else queries.contiguous(),
            key[0].transpose(0, 1),
            value[0].transpose(0, 1),
            self.seen,
            scale=scaling,
            softcap=softcap,
            sinks=sinks,
            window=kind.window,
            chunk=kind.chunk,
        )[None]
