"""One pass of the model over staged tokens; the only place that calls it.

Knows the model's calling convention, and nothing of what the tokens mean.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.runner.attention import Visibility
from draftwood.runner.cache import KVCache
from draftwood.runner.cpu.calls import Shortcuts
from draftwood.runner.eager import eager
from draftwood.runner.masks import Masks
from draftwood.runner.rotary import Ropes


class Staging:
    """``lanes`` int64 buffers side by side, as large as the largest forward so far."""

    def __init__(self, lanes: int, device: torch.device) -> None:
        self._lanes = lanes
        self._device = device
        self._capacity = 0
        self._size = 0
        self._grow(64)

    def _grow(self, size: int) -> None:
        self._capacity = max(size, 2 * self._capacity)
        total = self._lanes * self._capacity
        self._host = torch.zeros(total, dtype=torch.int64, pin_memory=self._device.type == "cuda")
        self._numbers = self._host.numpy()
        on_host = self._device.type == "cpu"
        self._there = self._host if on_host else self._host.to(self._device)
        self._views: dict[tuple[int, ...], tuple[torch.Tensor, ...]] = {}

    def lanes(self, size: int) -> NDArray[np.int64]:
        """Writable ``[lanes, size]``, to be sent with :meth:`send`."""
        if size > self._capacity:
            self._grow(size)
        self._size = size
        return self._numbers[: self._lanes * size].reshape(self._lanes, size)

    def send(self, *shape: int) -> tuple[torch.Tensor, ...]:
        """The lanes on the device, each contiguous int64 of ``shape``, by default ``[size]``."""
        shape = shape or (self._size,)
        if self._there is not self._host:
            total = self._lanes * self._size
            self._there[:total].copy_(self._host[:total], non_blocking=True)
        views = self._views.get(shape)
        if views is None:
            total = self._lanes * self._size
            views = self._there[:total].view(self._lanes, *shape).unbind(0)
            self._views[shape] = views
        return views


class Passes:
    """Stages ids, positions and cells of a batch, then runs the model on them.

    Args:
        model: the attached model.
        slab: its cache.
        device: where both are.
        shortcuts: in force during a pass.
        ropes: told the extent of every token.
    """

    #: Added to all positions. The self-test looks at far ones without the text before them.
    shift: int = 0

    #: Whether ``torch.compile`` must be kept away from the passes.
    compiled: bool = False

    def __init__(
        self,
        model: Any,
        slab: KVCache,
        device: torch.device,
        shortcuts: Shortcuts | None = None,
        ropes: Ropes | None = None,
    ) -> None:
        self._model = model
        self._shortcuts = shortcuts or Shortcuts()
        self._ropes = ropes or Ropes()
        self._slab = slab
        self._staging = Staging(3, device)
        self._ramp = np.arange(1024)

    def lanes(self, b: int, q: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Writable token ids and positions, ``[b, q]`` each, of the coming pass."""
        lanes = self._staging.lanes(b * q).reshape(3, b, q)
        self._positions, self._cells = lanes[1], lanes[2]
        return lanes[0], lanes[1]

    def run(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        kv: int,
        step: Visibility,
        mask: Masks,
        taps: tuple[int, ...] = (),
        keep: torch.Tensor | None = None,
        hidden: torch.Tensor | None = None,
        least: Sequence[int] = (),
    ) -> Any:
        """The model's output for the staged tokens.

        Args:
            rows: the cache row of every sequence, ascending.
            starts: the first cell each sequence writes.
            kv: cells that every sequence reads, those written included.
            step: how queries see keys.
            mask: what the attention gets as its mask.
            taps: layers whose input hidden states are wanted.
            keep: int64 ``[n]`` positions whose logits are wanted; None: all.
            hidden: ``[b, q, H]`` for a model that is given a vector beside each token.
            least: the least extent of each sequence's tokens (:mod:`draftwood.runner.rotary`),
                if some is longer than the text up to the token.
        """
        slab, cells = self._slab, self._cells
        b, q = cells.shape
        straight = slab.straight(rows, starts)
        if not straight:
            if q > self._ramp.size:
                self._ramp = np.arange(2 * q)
            ramp, stride = self._ramp[:q], slab.stride
            for i in range(b):
                np.add(ramp, rows[i] * stride + starts[i], out=cells[i])
        if self.shift:
            self._positions += self.shift
        ids, positions, index = self._staging.send(b, q)
        slab.begin(rows, starts, q, kv, None if straight else index.view(-1))
        extra: dict[str, Any] = {}
        if taps:
            extra["output_hidden_states"] = list(taps)
        if keep is not None:
            extra["logits_to_keep"] = keep
        if hidden is not None:
            extra["hidden"] = hidden
        with self._shortcuts, self._extents(least), eager() if self.compiled else nullcontext():
            return self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=slab,
                use_cache=True,
                draftwood_step=step,
                **extra,
            )

    def _extents(self, least: Sequence[int]) -> AbstractContextManager[None]:
        if not self._ropes:
            return nullcontext()
        extents = self._positions + 1
        if least:
            np.maximum(extents, np.array(least)[:, None] + self.shift, out=extents)
        return self._ropes.given(extents)


def tapped(output: Any, taps: tuple[int, ...]) -> torch.Tensor | None:
    """``[b, q, taps * H]`` hidden states entering the tapped layers, or None without taps.

    A model that is given a vector beside each token returns one as well: ``[b, q, H]``.
    """
    if not taps:
        returned: torch.Tensor | None = getattr(output, "hidden", None)
        return returned
    return torch.cat([output.hidden_states[tap] for tap in taps], dim=-1)
