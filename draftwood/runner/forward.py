"""One forward pass of the model over new tokens of several sequences; the model's only caller.

Token ids, positions and cache entries are staged on the host and reach the device in one copy.
Whether the tokens are a chunk of a prompt or a tree is up to the caller.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.runner.attention import Visibility
from draftwood.runner.cache import KVCache
from draftwood.runner.cpu.calls import DirectCalls
from draftwood.runner.cpu.layers import FusedLayers
from draftwood.runner.eager import eager
from draftwood.runner.masks import Masks, TreeMasks
from draftwood.runner.rotary import at_extents


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
        self._views: dict[tuple[int, ...], tuple[torch.Tensor, ...]] = {}

    def lanes(self, size: int) -> NDArray[np.int64]:
        """Writable buffers ``[lanes, size]`` for the next :meth:`send`."""
        if size > self._capacity:
            self._grow(size)
        self._size = size
        return self._numbers[: self._lanes * size].reshape(self._lanes, size)

    def send(self, *shape: int) -> tuple[torch.Tensor, ...]:
        """The lanes on the device, each contiguous int64 of ``shape``, by default ``[size]``."""
        shape = shape or (self._size,)
        if self._sent is not self._host:
            total = self._lanes * self._size
            self._sent[:total].copy_(self._host[:total], non_blocking=True)
        views = self._views.get(shape)
        if views is None:
            total = self._lanes * self._size
            views = self._sent[:total].view(self._lanes, *shape).unbind(0)
            self._views[shape] = views
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
        self._staging = Staging(3, device)
        self._ramp = np.arange(1024)

    def lanes(self, b: int, q: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Writable token ids and positions, ``[b, q]`` each, of the next :meth:`run`."""
        lanes = self._staging.lanes(b * q).reshape(3, b, q)
        self._positions, self._entries = lanes[1], lanes[2]
        return lanes[0], lanes[1]

    def run(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        kv: int,
        visibility: Visibility,
        mask: Masks,
        taps: tuple[int, ...] = (),
        keep: torch.Tensor | None = None,
        hidden: torch.Tensor | None = None,
        min_extents: Sequence[int] = (),
    ) -> Any:
        """Run the model over the staged tokens and return its output.

        Args:
            rows: cache row of each sequence, ascending.
            starts: first cache entry that each sequence writes.
            kv: entries that each sequence reads, those written included.
            visibility: how queries see keys.
            mask: passed to the attention.
            taps: layers whose input hidden states are returned.
            keep: int64 ``[n]`` positions whose logits are returned; None: all.
            hidden: ``[b, q, H]`` for a model that takes a vector beside each token.
            min_extents: lower bound of each sequence's extents (:mod:`draftwood.runner.rotary`);
                without one, a token's extent is its position plus one.
        """
        cache, entries = self.cache, self._entries
        b, q = entries.shape
        rectangular = cache.rectangular(rows, starts)
        if not rectangular:
            if q > self._ramp.size:
                self._ramp = np.arange(2 * q)
            ramp, stride = self._ramp[:q], cache.stride
            for i in range(b):
                np.add(ramp, rows[i] * stride + starts[i], out=entries[i])
        if self.shift:
            self._positions += self.shift
        ids, positions, index = self._staging.send(b, q)
        cache.begin(rows, starts, q, kv, None if rectangular else index.view(-1))
        extra: dict[str, Any] = {}
        if taps:
            extra["output_hidden_states"] = list(taps)
        if keep is not None:
            extra["logits_to_keep"] = keep
        if hidden is not None:
            extra["hidden"] = hidden
        without_compile = eager() if self.compiled else nullcontext()
        extents = self._extents(min_extents)
        with self._direct_calls, self._fused_layers, extents, without_compile:
            return self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                draftwood_visibility=visibility,
                **extra,
            )

    def _extents(self, min_extents: Sequence[int]) -> AbstractContextManager[None]:
        if not self._needs_extents:
            return nullcontext()
        extents = self._positions + 1
        if min_extents:
            np.maximum(extents, np.array(min_extents)[:, None] + self.shift, out=extents)
        return at_extents(extents)


def tapped_features(output: Any, taps: tuple[int, ...]) -> torch.Tensor | None:
    """Hidden states entering the tapped layers, ``[b, q, taps * H]``; without taps None.

    Without taps, a model that takes a vector beside each token gives its own ``[b, q, H]``.
    """
    if not taps:
        returned: torch.Tensor | None = getattr(output, "hidden", None)
        return returned
    return torch.cat([output.hidden_states[tap] for tap in taps], dim=-1)
