"""One forward pass of the model over new tokens of several sequences; the model's only caller.

Token ids, positions and cache entries are staged on the host and reach the device in one copy.
The sequences lie behind one another in one row, so that a short one costs no more than its tokens.
Whether the tokens are a chunk of a prompt or a tree is up to the caller.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.runner.attention import Varlen, Visibility
from draftwood.runner.cache import KVCache
from draftwood.runner.cpu.calls import DirectCalls
from draftwood.runner.cpu.layers import FusedLayers
from draftwood.runner.eager import eager
from draftwood.runner.masks import Masks, TreeMasks
from draftwood.runner.rotary import at_extents

_STEP = 256
"""Tokens up to which a size comes again and again, so that its views are kept."""


class Staging:
    """``lanes`` int64 host buffers that are sent to the device together; they grow as needed."""

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
        self._sent = self._host if on_host else self._host.to(self._device)
        self._views: dict[int, tuple[torch.Tensor, ...]] = {}

    def lanes(self, size: int) -> NDArray[np.int64]:
        """Writable buffers ``[lanes, size]`` for the next :meth:`send`."""
        if size > self._capacity:
            self._grow(size)
        self._size = size
        return self._numbers[: self._lanes * size].reshape(self._lanes, size)

    def send(self) -> tuple[torch.Tensor, ...]:
        """The lanes on the device, each contiguous int64 ``[size]``."""
        size, total = self._size, self._lanes * self._size
        if self._sent is not self._host:
            self._sent[:total].copy_(self._host[:total], non_blocking=True)
        views = self._views.get(size)
        if views is None:
            views = self._sent[:total].view(self._lanes, size).unbind(0)
            if size <= _STEP:
                self._views[size] = views
        return views


class ForwardPass:
    """The attached model with its KV cache and masks, run over staged tokens.

    Args:
        model: the attached model.
        cache: its KV cache.
        masks: its mask buffers.
        device: where all of them are.
        direct_calls: in force during a pass.
        fused_layers: in force during a pass.
        needs_extents: the rotary modules are patched and need the extent of every token.
    """

    #: Added to all positions. The self-test uses it to reach far positions without a long text.
    shift: int = 0

    #: Whether ``torch.compile`` must be switched off during a pass.
    compiled: bool = False

    def __init__(
        self,
        model: Any,
        cache: KVCache,
        masks: TreeMasks,
        device: torch.device,
        direct_calls: DirectCalls | None = None,
        needs_extents: bool = False,
        fused_layers: FusedLayers | None = None,
    ) -> None:
        self.cache = cache
        self.masks = masks
        self.device = device
        self._model = model
        self._direct_calls = direct_calls or DirectCalls()
        self._fused_layers = fused_layers or FusedLayers()
        self._needs_extents = needs_extents
        self._staging = Staging(4, device)
        self._ramp = np.arange(1024)

    def lanes(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Writable token ids and positions, ``[n]`` each, of the next :meth:`run`."""
        lanes = self._staging.lanes(n)
        self._positions = lanes[1]
        return lanes[0], lanes[1]

    def run(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        visibility: Visibility,
        mask: Masks,
        taps: tuple[int, ...] = (),
        keep: torch.Tensor | None = None,
        hidden: torch.Tensor | None = None,
        min_extents: Sequence[int] = (),
    ) -> Any:
        """Run the model over the staged tokens, ``[1, n]``, and return its output.

        The tokens of several sequences lie behind one another: nothing is padded to the longest.

        Args:
            rows: cache row of each sequence, ascending.
            starts: first cache entry that each sequence writes.
            counts: tokens of each sequence.
            visibility: how the queries of each sequence see its keys.
            mask: passed to the attention.
            taps: layers whose input hidden states are returned.
            keep: int64 positions in ``[n]`` whose logits are returned; None: all.
            hidden: ``[1, n, H]`` for a model that takes a vector beside each token.
            min_extents: lower bound of each sequence's extents (:mod:`draftwood.runner.rotary`);
                without one, a token's extent is its position plus one.
        """
        cache, several = self.cache, len(rows) > 1
        n, lengths = sum(counts), list(map(add, starts, counts))
        cache.reserve(0, max(lengths))
        lanes = self._staging.lanes(n)
        by_index = several or cache.scatter
        if by_index:
            self._write_places(rows, starts, counts, lanes)
        if self.shift:
            self._positions += self.shift
        ids, positions, entries, places = self._staging.send()
        cache.begin(rows, starts, counts, entries if by_index else None)
        extra: dict[str, Any] = {}
        if taps:
            extra["output_hidden_states"] = list(taps)
        if keep is not None:
            extra["logits_to_keep"] = keep
        if hidden is not None:
            extra["hidden"] = hidden
        step: Visibility | Varlen = visibility
        if several:
            step = Varlen(visibility, counts, lengths, places if self.masks.padded else None)
        without_compile = eager() if self.compiled else nullcontext()
        extents = self._extents(counts, min_extents)
        with self._direct_calls, self._fused_layers, extents, without_compile:
            return self._model(
                input_ids=ids[None],
                attention_mask=mask,
                position_ids=positions[None],
                past_key_values=cache,
                use_cache=True,
                draftwood_visibility=step,
                **extra,
            )

    def _write_places(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        lanes: NDArray[np.int64],
    ) -> None:
        """Write each token's cache entry, and its place among padded queries."""
        q, stride, begin = max(counts), self.cache.stride, 0
        if q > self._ramp.size:
            self._ramp = np.arange(2 * q)
        for i, (row, start, count) in enumerate(zip(rows, starts, counts, strict=True)):
            ramp, end = self._ramp[:count], begin + count
            np.add(ramp, row * stride + start, out=lanes[2, begin:end])
            np.add(ramp, i * q, out=lanes[3, begin:end])
            begin = end

    def _extents(
        self, counts: Sequence[int], min_extents: Sequence[int]
    ) -> AbstractContextManager[None]:
        if not self._needs_extents:
            return nullcontext()
        extents = self._positions + 1
        if min_extents:
            np.maximum(extents, np.repeat(min_extents, counts) + self.shift, out=extents)
        return at_extents(extents[None])


def tapped_features(output: Any, taps: tuple[int, ...]) -> torch.Tensor | None:
    """Hidden states entering the tapped layers, ``[1, n, taps * H]``; without taps None.

    Without taps, a model that takes a vector beside each token gives its own ``[1, n, H]``.
    """
    if not taps:
        returned: torch.Tensor | None = getattr(output, "hidden", None)
        return returned
    return torch.cat([output.hidden_states[tap] for tap in taps], dim=-1)
