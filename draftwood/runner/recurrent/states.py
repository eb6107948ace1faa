"""The states of a model's recurrent layers, by slot, beside the KV cache."""

import logging
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType

import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Snapshot
from draftwood.runner.recurrent.forwards import ChunkForward, Place, TreeForward

logger = logging.getLogger(__name__)

_EVERY = 1024
"""Tokens of a prompt behind which its states are kept again, at the end of the next chunk."""

TAIL = 16
"""Tokens of a prompt's end before which its states are kept. The next turn of a chat may begin
without them: a template ends a prompt with what it leaves out of the answer later, such as the
beginning of a thought."""

MOST_SNAPSHOTS = 4
"""States that are kept of a text at most, as each takes as much as a slot."""


class RecurrentStates:
    """One state for each slot, layer and kind; none for a node of a tree.

    A forward over a tree leaves the states as they are. It keeps a few vectors of each node, from
    which :meth:`commit` computes the state behind the accepted path. Inside ``with states:`` the
    model's recurrent layers read :attr:`forward`.

    A state cannot go back. So that a later text can begin like this one, snapshots of the states
    are kept of the slots that :meth:`remember` was called for.

    Args:
        device: the model's.

    Attributes:
        prompts_differ: whether tokens leave other states as part of a prompt than decoded. Then the
            states behind an answer are not those of a prompt that has it as its beginning.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensors: dict[Place, torch.Tensor] = {}
        self._slots = 0
        self._next: TreeForward | ChunkForward | None = None
        self._latest: dict[int, tuple[TreeForward, int]] = {}
        self._decoded: set[int] = set()
        self._here = threading.local()
        self.prompts_differ = False
        # By slot and the text's length, of the slots whose states are kept.
        self._snapshots: dict[int, dict[int, Snapshot]] = {}

    @property
    def forward(self) -> TreeForward | ChunkForward | None:
        """The forward that the model computes on this thread; None: it is not ours."""
        found: TreeForward | ChunkForward | None = getattr(self._here, "forward", None)
        return found

    @property
    def present(self) -> TreeForward | ChunkForward:
        """:attr:`forward`, inside of one."""
        forward = self.forward
        assert forward is not None
        return forward

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot's states, as far as the layers have made them."""
        return sum(each[0].numel() * each.itemsize for each in self._tensors.values())

    def node_bytes(self, slot: int) -> int:
        """Bytes that the slot's last forward keeps of a node until the commit."""
        return sum(kept.node_bytes for kept in self._latest[slot][0].kept.values())

    def of(self, place: Place, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """The states of all slots, ``[slots, *shape]``."""
        found = self._tensors.get(place)
        if found is None:
            found = torch.zeros((self._slots, *shape), dtype=dtype, device=self._device)
            self._tensors[place] = found
        return found

    @torch.inference_mode()
    def open(self, slot: int) -> None:
        """Begin a slot with states of zeros.

        Raises:
            Exception: there is no memory for it. The other slots are as they were.
        """
        if slot >= self._slots:
            slots = max(slot + 1, self._slots * 5 // 4)
            for place, tensor in self._tensors.items():
                if len(tensor) < slots:
                    grown = tensor.new_zeros((slots, *tensor.shape[1:]))
                    grown[: len(tensor)] = tensor
                    self._tensors[place] = grown
            self._slots = slots
        for tensor in self._tensors.values():
            tensor[slot] = 0

    def release(self, slot: int) -> None:
        """Forget a slot; this takes no memory, of which a forward may just have run out."""
        self._latest.pop(slot, None)
        self._decoded.discard(slot)
        self._snapshots.pop(slot, None)

    def trim(self) -> None:
        """Give back all memory; no slot is open."""
        self._tensors.clear()
        self._latest.clear()
        self._decoded.clear()
        self._snapshots.clear()
        self._slots = 0

    @torch.inference_mode()
    def roll_back(self, slot: int, length: int, cached: int) -> None:
        """Keep the first tokens of a slot: none of them, or all.

        Raises:
            DraftwoodError: some, of which there is no state.
        """
        if length == cached:
            return
        if length:
            raise DraftwoodError(
                f"slot {slot} has one state for {cached} tokens and cannot be cut to {length}; "
                "cut it to 0 and cache its text again"
            )
        self.open(slot)
        self.release(slot)

    def remember(self, slot: int) -> None:
        """Keep snapshots of a slot until it is released."""
        self._snapshots.setdefault(slot, {})

    def cached(self, slot: int, length: int, *, ended: bool = False) -> None:
        """Note that a slot's states are those behind a prompt's first tokens.

        Args:
            slot: where the prompt is cached.
            length: tokens so far.
            ended: whether only the prompt's end is missing; else a snapshot is kept now and then.
        """
        kept = self._snapshots.get(slot)
        if kept is None:
            return
        if length - max(kept, default=0) >= _EVERY or (ended and length not in kept):
            try:
                kept[length] = self._snapshot(slot)
            except (MemoryError, RuntimeError) as error:  # the prompt goes on without it
                logger.warning("the states behind %d tokens are not kept: %s", length, error)
        _thin(kept)

    def savable(self, slot: int, length: int, cached: int) -> int:
        """The most of a slot's first ``length`` tokens behind which its states are known."""
        if self._is_prompt(slot, length, cached):
            return length
        return max((n for n in self._snapshots.get(slot, ()) if n <= length), default=0)

    def saved(self, slot: int, length: int, cached: int) -> dict[int, Snapshot]:
        """The snapshots of a slot's first ``length`` tokens, and its states if it holds no more."""
        found = {n: each for n, each in self._snapshots.get(slot, {}).items() if n <= length}
        if self._is_prompt(slot, length, cached) and length not in found:
            found[length] = self._snapshot(slot)
            # The one before is of the prompt's end, where further answers begin.
            _thin(found, newest=2)
        _thin(found)
        return found

    def _is_prompt(self, slot: int, length: int, cached: int) -> bool:
        """Whether the slot's states are those of a prompt of its first ``length`` tokens."""
        return cached == length and not (self.prompts_differ and slot in self._decoded)

    @torch.inference_mode()
    def restore(self, slot: int, length: int, states: Mapping[int, Snapshot]) -> None:
        """Continue a slot behind ``length`` tokens of a text of which these states were kept."""
        for place, kept in states[length].items():
            self.of(place, kept.shape, kept.dtype)[slot] = kept
        if slot in self._snapshots:
            self._snapshots[slot] = {n: each for n, each in states.items() if n <= length}

    @torch.inference_mode()
    def _snapshot(self, slot: int) -> Snapshot:
        return {place: tensor[slot].clone() for place, tensor in self._tensors.items()}

    def begin_chunk(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """The next forward is over tokens that follow the slots' texts."""
        self._next = ChunkForward(tuple(slots), tuple(counts))
        self._leave(slots)

    def begin_trees(
        self, slots: Sequence[int], parents: Sequence[Sequence[int]], done: Sequence[int]
    ) -> None:
        """The next forward is over trees, of which the first ``done`` nodes were computed before.

        Raises:
            DraftwoodError: nothing is known of these nodes.
        """
        before = []
        for slot, count in zip(slots, done, strict=True):
            known = self._latest.get(slot)
            if count and (known is None or len(known[0].parents[known[1]]) < count):
                raise DraftwoodError(
                    f"slot {slot}: a tree grows from {count} nodes that the last forward of this "
                    "slot did not compute"
                )
            before.append(known)
        sources: list[tuple[TreeForward, int]] = []
        if any(done):
            # A sequence that begins has nothing before; its padding is of any node.
            some = next(each for each in before if each is not None)
            sources = [each if each and n else some for each, n in zip(before, done, strict=True)]
        self._next = forward = TreeForward(tuple(slots), parents, done, self._device, sources)
        self._leave(slots)
        for i, slot in enumerate(slots):
            self._latest[slot] = (forward, i)

    def __enter__(self) -> None:
        self._here.forward, self._next = self._next, None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        forward, self._here.forward = self.forward, None
        if isinstance(forward, TreeForward) and kind is None:
            # It has a copy of what was kept of earlier nodes.
            forward.before.clear()
            if forward.kept and forward.padded_nodes:
                self._keep_only(forward, range(len(forward.slots)))

    @torch.inference_mode()
    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Advance the slots' states over their roots and these paths of the last forward."""
        by_forward: dict[int, list[int]] = {}
        for i, slot in enumerate(slots):
            by_forward.setdefault(id(self._latest[slot][0]), []).append(i)
        for group in by_forward.values():
            forward = self._latest[slots[group[0]]][0]
            chosen = [self._latest[slots[i]][1] for i in group]
            forward.commit(self._tensors, chosen, [(0, *paths[i]) for i in group])
        self._leave(slots)
        self._decoded.update(slots)

    def _leave(self, slots: Sequence[int]) -> None:
        """Forget the slots' last forwards, of which only what other slots need is kept."""
        left = {}
        for slot in slots:
            if slot in self._latest:
                forward, _ = self._latest.pop(slot)
                left[id(forward)] = forward
        for forward in left.values():
            rest = [i for i, slot in enumerate(forward.slots) if self._is_latest(slot, forward)]
            if rest:
                self._keep_only(forward, rest)

    def _is_latest(self, slot: int, forward: TreeForward) -> bool:
        return slot in self._latest and self._latest[slot][0] is forward

    @torch.inference_mode()
    def _keep_only(self, forward: TreeForward, chosen: Sequence[int]) -> None:
        """Replace the slots' last forward by one of these sequences alone, without padding."""
        part = forward.part(chosen)
        for i, slot in enumerate(part.slots):
            self._latest[slot] = (part, i)


def _thin(kept: dict[int, Snapshot], newest: int = 1) -> None:
    """Drop snapshots until there are few: those whose neighbours are closest, never the newest."""
    while len(kept) > MOST_SNAPSHOTS:
        lengths = [0, *sorted(kept)]
        closest = min(
            range(1, len(kept) + 1 - newest), key=lambda i: lengths[i + 1] - lengths[i - 1]
        )
        del kept[lengths[closest]]
