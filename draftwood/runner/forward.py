"""One forward pass of the model over new tokens of several sequences; the model's only caller.

Token ids, positions, cache entries and what masks are built from reach the device in one copy.
The sequences lie behind one another in one row, so that a short one costs no more than its tokens.
Whether the tokens are a chunk of a prompt or a tree is up to the caller.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import Staging
from draftwood.kernels.grouped import unplanned
from draftwood.models.hidden_states import wanted
from draftwood.runner.attention import Step, Varlen, Visibility, handed
from draftwood.runner.block_cache import BlockCache
from draftwood.runner.cache import KVCache
from draftwood.runner.cpu.calls import DirectCalls
from draftwood.runner.cpu.layers import FusedLayers
from draftwood.runner.device_trees import SeenPlan
from draftwood.runner.eager import eager
from draftwood.runner.gpu_layers import GpuLayers
from draftwood.runner.masks import MaskBuilder, MaskPlan, Masks
from draftwood.runner.ramps import Ramps
from draftwood.runner.ranks import Ranks
from draftwood.runner.recurrent.states import RecurrentStates
from draftwood.runner.rotary import at_extents
from draftwood.runner.scored import Scored, scored
from draftwood.runner.static import StaticForward


class _Sent(NamedTuple):
    """Numbers of a forward on the device, int64.

    Attributes:
        ids: token ids ``[n]``.
        positions: of the tokens.
        entries: cache entries of the tokens; None if they lie behind one another.
        places: of the tokens among padded queries; None if none are padded.
        rows: of the sequences in the cache; None if they lie behind one another and no kernel
            reads them.
        keep: positions in ``[n]`` whose logits are returned.
        numbers: those of the masks.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    entries: torch.Tensor | None
    places: torch.Tensor | None
    rows: torch.Tensor | None
    keep: torch.Tensor
    numbers: torch.Tensor


class ForwardPass:
    """The attached model with its KV cache and masks, run over staged tokens.

    Args:
        model: the attached model.
        cache: its KV cache.
        masks: makes its masks.
        device: where all of them are.
        direct_calls: in force during a pass.
        fused_layers: in force during a pass.
        needs_extents: the rotary modules are patched and need the extent of every token.
        drops_step: layers drop the argument that tells attention how queries see keys.
    """

    #: Added to all positions. The self-test uses it to reach far positions without a long text.
    shift: int = 0

    #: The further numbers of the last run, on the device.
    further: torch.Tensor

    #: Whether prompts may begin with a large forward (:mod:`draftwood.runner.prefill`).
    large_beginning: bool = False

    #: Whether layers are fused for a usual forward over one prompt, which is quicker then.
    fused_chunk: bool = False

    #: Runs trees in buckets, where a device repeats recorded forwards.
    static: StaticForward | None = None

    #: The states of recurrent layers, if the model has any.
    recurrent: RecurrentStates | None = None

    #: The processes among which the model is divided; None: this one has all of it.
    ranks: Ranks | None = None

    #: Whether ``torch.compile`` must be switched off during a pass.
    compiled: bool = False

    def __init__(
        self,
        model: Any,
        cache: KVCache,
        masks: MaskBuilder,
        device: torch.device,
        direct_calls: DirectCalls | None = None,
        needs_extents: bool = False,
        fused_layers: FusedLayers | GpuLayers | None = None,
        *,
        drops_step: bool = False,
    ) -> None:
        self.cache = cache
        self.masks = masks
        self.device = device
        self._model = model
        self._direct_calls = direct_calls or DirectCalls()
        self._fused_layers = fused_layers or FusedLayers()
        self._outer_calls = self._direct_calls.without(self._fused_layers.modules)
        self.needs_extents = needs_extents
        self._drops_step = drops_step
        self._staging = Staging(device)
        self._ramps = Ramps()

    def refresh(self) -> None:
        """Have fused layers of a CPU read weights that were replaced; linears are refreshed first.

        Between two forwards.
        """
        if isinstance(self._fused_layers, FusedLayers):
            self._fused_layers.refresh()

    def lanes(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Writable token ids and positions, ``[n]`` each, of the next :meth:`run`."""
        numbers = self._staging.begin(2 * n)
        self._ids, self._positions = numbers[:n], numbers[n:]
        return self._ids, self._positions

    def run(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        visibility: Visibility,
        mask: MaskPlan,
        taps: tuple[int, ...] = (),
        keep: Sequence[int] = (),
        hidden: torch.Tensor | None = None,
        min_extents: Sequence[int] = (),
        further: NDArray[np.int64] | None = None,
        top_k: int | None = None,
    ) -> Scored:
        """Run the model over the staged tokens, ``[1, n]``.

        The tokens of several sequences lie behind one another: nothing is padded to the longest.

        Args:
            rows: cache row of each sequence, ascending.
            starts: first cache entry that each sequence writes.
            counts: tokens of each sequence.
            visibility: how the queries of each sequence see its keys.
            mask: of the attention.
            taps: layers whose input hidden states are returned.
            keep: positions in ``[n]`` whose logits are returned; none: all.
            hidden: ``[1, n, H]`` for a model that takes a vector beside each token.
            min_extents: lower bound of each sequence's extents (:mod:`draftwood.runner.rotary`);
                without one, a token's extent is its position plus one.
            further: numbers for others that are uploaded, see :attr:`further`.
            top_k: tokens in the top-k of every row that the host reads; None: it reads no rows.

        Raises:
            DraftwoodError: other processes that run the model have other tokens.
        """
        if self.shift:
            self._positions += self.shift
        if self.ranks is not None:
            places = repr((rows, starts, counts, keep)).encode()
            self.ranks.compare((places, self._ids.tobytes(), self._positions.tobytes()))
        plan = mask if isinstance(mask, SeenPlan) else None
        if self.static is not None and plan is not None and visibility is Visibility.TREE:
            tokens = (self._ids, self._positions)
            others = np.empty(0, dtype=np.int64) if further is None else further
            found = self.static.run(
                *(rows, starts, plan, *tokens, taps, keep, hidden, others, top_k)
            )
            if found is not None:
                output, self.further = found
                return output
        cache = self.cache
        lengths = list(map(add, starts, counts))
        cache.make_room(rows, lengths)
        # Before the buffer of the positions may grow and move.
        extents = self._extents(counts, min_extents)
        by_kernel = plan is not None
        sent = self._send(rows, starts, counts, keep, mask.numbers, further, by_kernel)
        cache.begin(rows, starts, counts, sent.entries, sent.rows)
        step: Step = visibility
        if plan is not None:
            assert sent.rows is not None
            assert isinstance(cache, BlockCache)
            step = plan.attention(plan.seen(sent.numbers, sent.rows, cache.table))
        elif len(rows) > 1:
            step = Varlen(visibility, counts, lengths, sent.places, mask.in_order)
        masks, kept = mask.build(sent.numbers), sent.keep if keep else None
        with extents:
            return self.call(sent.ids[None], sent.positions[None], masks, step, taps, hidden, kept)

    def call(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        masks: Masks,
        step: Step,
        taps: tuple[int, ...],
        hidden: torch.Tensor | None,
        keep: torch.Tensor | None = None,
    ) -> Scored:
        """Call the model with numbers on the device, after the cache's :meth:`KVCache.begin`.

        Args:
            ids: int64 ``[1, n]``.
            positions: of the tokens.
            masks: as the model takes them.
            step: how queries see keys.
            taps: layers whose input hidden states are returned.
            hidden: ``[1, n, H]`` for a model that takes a vector beside each token.
            keep: positions in ``[n]`` whose logits are returned; None: all.
        """
        extra: dict[str, Any] = {}
        if keep is not None:
            extra["logits_to_keep"] = keep
        if hidden is not None:
            extra["hidden"] = hidden
        layers = self._fused_layers.reading(taps, ids.shape[1])
        without_compile = eager() if self.compiled else nullcontext()
        to_attention = handed(step) if self._drops_step else nullcontext()
        with (
            layers,
            without_compile,
            to_attention,
            unplanned(self.device),
            self.recurrent or nullcontext(),
        ):
            if taps and not layers.direct:
                extra["output_hidden_states"] = wanted(taps)
            # With few rows, what the layers have inside is called by their kernels.
            with self._outer_calls if layers.direct else self._direct_calls:
                output = self._model(
                    input_ids=ids,
                    attention_mask=masks,
                    position_ids=positions,
                    past_key_values=self.cache,
                    use_cache=True,
                    draftwood_visibility=step,
                    **extra,
                )
        found = scored(output, taps, layers.take_states())
        if keep is not None and len(found.logits) == ids.shape[1] != len(keep):
            # Some wrappers of a language model drop the argument and return all rows.
            return found._replace(logits=found.logits.index_select(0, keep))
        return found

    def _send(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        keep: Sequence[int],
        numbers: NDArray[np.int64],
        further: NDArray[np.int64] | None,
        by_kernel: bool,
    ) -> _Sent:
        """Upload the staged tokens with all other numbers of a forward."""
        n, b = sum(counts), len(rows)
        by_index = n if b > 1 or self.cache.by_index else 0
        padded = n if b > 1 and self.masks.padded else 0
        apart = rows if by_kernel or rows[-1] - rows[0] >= b else ()
        others = (apart, keep, numbers, () if further is None else further)
        sizes = (n, n, by_index, padded, *map(len, others))
        into = self._staging.room(sum(sizes))
        if by_index:
            self._write_entries(rows, starts, counts, into[2 * n :])
        if padded:
            self._write_places(counts, into[3 * n :])
        begin = 2 * n + by_index + padded
        for part in others:
            into[begin : begin + len(part)] = part
            begin += len(part)
        ids, positions, entries, places, picked, kept, given, self.further = self._staging.send(
            sizes
        )
        return _Sent(
            ids,
            positions,
            entries if by_index else None,
            places if padded else None,
            picked if apart else None,
            kept,
            given,
        )

    def _write_entries(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        into: NDArray[np.int64],
    ) -> None:
        """Write each token's cache entry."""
        self._ramps.write(*self.cache.runs(rows, starts, counts), into)

    def _write_places(self, counts: Sequence[int], into: NDArray[np.int64]) -> None:
        """Write each token's place among padded queries."""
        q = max(counts)
        self._ramps.write(range(0, q * len(counts), q), counts, into)

    def _extents(
        self, counts: Sequence[int], min_extents: Sequence[int]
    ) -> AbstractContextManager[None]:
        if not self.needs_extents:
            return nullcontext()
        extents = self._positions + 1
        if min_extents:
            np.maximum(extents, np.repeat(min_extents, counts) + self.shift, out=extents)
        return at_extents(extents[None])
