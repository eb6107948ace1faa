"""The target: scores a tree in one forward pass and keeps the accepted path in its cache."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols.fingerprint import Fingerprint
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class TargetOutput:
    """The target's raw logits after ``n`` tokens (nodes of one tree, or prompt positions).

    Attributes:
        logits: float ``[n, V]`` on the target's device, before any processor. After a prefill
            only the last position's row is stored: ``[1, V]``.
        argmax: int64 ``[n]`` on the host; the first index of the largest logit, -1 where a logit of
            the row is not a number. It and the top-k are empty if they are not needed on the host.
        top_tokens: int64 ``[n, k]`` on the host, likeliest first (``k`` may be 0).
        top_probs: float32 ``[n, k]``, their softmax probabilities.
        features: ``[n, taps * H]`` hidden states that :attr:`Needs.taps` names, or None.
        drawn: int64 ``[n]`` on the host, the token after each node by the request's random numbers,
            -1 if none can follow; None if the tokens were not drawn with the forward.
    """

    logits: torch.Tensor
    argmax: NDArray[np.int64]
    top_tokens: NDArray[np.int64]
    top_probs: NDArray[np.float32]
    features: torch.Tensor | None = None
    drawn: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Computed:
    """The output of a target that computes at once; a :class:`Submitted`.

    Attributes:
        outputs: of each tree.
        uploaded: the numbers on the device; None if the target uploads none.
    """

    outputs: list[TargetOutput]
    uploaded: torch.Tensor | None = None

    @property
    def logits(self) -> Sequence[torch.Tensor]:
        """Of each tree, ``[n, V]``."""
        return [output.logits for output in self.outputs]

    @property
    def numbers(self) -> torch.Tensor:
        """The uploaded numbers.

        Raises:
            DraftwoodError: the target uploads none.
        """
        if self.uploaded is None:
            raise DraftwoodError("this target uploads no numbers: its tokens are drawn on the host")
        return self.uploaded

    def rows(self, drawn: Sequence[torch.Tensor | None] = ()) -> list[TargetOutput]:
        """The output, with the drawn tokens."""
        return self.rows_with(drawn, ())[0]

    def rows_with(
        self, drawn: Sequence[torch.Tensor | None], further: Sequence[torch.Tensor]
    ) -> tuple[list[TargetOutput], list[NDArray[Any]]]:
        """The output, with the drawn tokens, and further tensors."""
        found = self.outputs
        if drawn:
            found = [
                output if tokens is None else replace(output, drawn=tokens.cpu().numpy())
                for output, tokens in zip(found, drawn, strict=True)
            ]
        return found, [tensor.cpu().numpy() for tensor in further]


@dataclass(frozen=True)
class Needs:
    """Outputs that a drafter needs beyond the logits of the tree.

    Attributes:
        top_k: tokens in the top-k of every row (0: none).
        prompt_rows: whether the top-k is needed at all positions of the prompt too.
        taps: target layers whose input hidden states are needed, in this order. The number of
            layers stands for the last hidden state, after the final norm.
        host: whether the argmax and the top-k are read; if not, they are empty, and nothing waits
            for the device.
    """

    top_k: int = 0
    prompt_rows: bool = False
    taps: tuple[int, ...] = ()
    host: bool = True

    def __or__(self, other: Needs) -> Needs:
        taps = (*self.taps, *(tap for tap in other.taps if tap not in self.taps))
        most = max(self.top_k, other.top_k)
        return Needs(most, self.prompt_rows or other.prompt_rows, taps, self.host or other.host)


@dataclass(frozen=True)
class Origin:
    """A model's family, from its configuration.

    Attributes:
        name: directory or hub id that the model was loaded from, else empty.
        family: ``model_type`` of the text configuration.
        begins: id of the token that begins a text, or None.
        ends: ids of the tokens that end a text, ascending.
    """

    name: str
    family: str
    begins: int | None
    ends: tuple[int, ...]


@dataclass(frozen=True)
class TargetInfo:
    """Facts of a model.

    ``context_limit`` is its longest sequence in tokens. ``identity`` is a digest of its
    configuration; if empty, no measurement of it is cached. ``eos`` are the token ids that end a
    sequence. ``fingerprint`` tells its weights from others; None where they cannot be read.
    ``layouts`` are the names of the layouts that weights are in on a CPU, sorted, and ``kernels``
    is the version of the compiled kernels; empty without. ``token_bytes`` are the bytes of a
    token's keys and values in all layers; 0 where nothing is cached. ``slot_bytes`` are the bytes
    of a sequence's recurrent states, however long it is, and ``node_bytes`` those that its
    recurrent layers keep of a tree's node until the commit; 0 without such layers. A text that
    grows beyond ``recomputed_above`` tokens is computed again, and has two slots meanwhile; None:
    no text is. ``config`` are the fields of its text configuration; empty where it has none.
    """

    vocab_size: int
    context_limit: int
    layers: int
    hidden_size: int
    device: torch.device
    dtype: torch.dtype
    identity: str = ""
    origin: Origin | None = None
    eos: frozenset[int] = frozenset()
    fingerprint: Fingerprint | None = None
    layouts: tuple[str, ...] = ()
    kernels: str = ""
    token_bytes: int = 0
    slot_bytes: int = 0
    node_bytes: int = 0
    recomputed_above: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


Snapshot: TypeAlias = "Mapping[tuple[int, str], torch.Tensor]"
"""The states of recurrent layers behind a text: by the layer's index and the state's name."""


def snapshot_bytes(states: Snapshot) -> int:
    """Bytes of a snapshot."""
    return sum(tensor.numel() * tensor.itemsize for tensor in states.values())


@dataclass(frozen=True, eq=False)
class SavedTokens:
    """Keys and values of a text's first tokens, copied out of a cache.

    Attributes:
        length: tokens.
        tensors: as the cache groups them, with ``length`` entries each.
        states: of recurrent layers, behind so many tokens; None: the model has no such layers.
    """

    length: int
    tensors: tuple[torch.Tensor, ...]
    states: Mapping[int, Snapshot] | None = None

    def restorable(self, length: int) -> int:
        """How many of the first ``length`` tokens a slot can begin with."""
        if self.states is None:
            return min(length, self.length)
        return max((known for known in self.states if known <= length), default=0)

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        states = sum(map(snapshot_bytes, (self.states or {}).values()))
        return states + sum(tensor.numel() * tensor.itemsize for tensor in self.tensors)


class Submitted(Protocol):
    """A forward that the device may still be running."""

    @property
    def logits(self) -> Sequence[torch.Tensor]:
        """Of each tree, ``[n, V]`` on the device."""
        ...

    @property
    def numbers(self) -> torch.Tensor:
        """The uploaded numbers, int64; valid until the next forward."""
        ...

    def rows(self, drawn: Sequence[torch.Tensor | None] = ()) -> list[TargetOutput]:
        """Wait for the output; to be called once.

        ``drawn`` are the tokens of :class:`TargetOutput`, int64 ``[n]`` on the device or None for
        each tree, which come to the host with the rest.
        """
        ...

    def rows_with(
        self, drawn: Sequence[torch.Tensor | None], further: Sequence[torch.Tensor]
    ) -> tuple[list[TargetOutput], list[NDArray[Any]]]:
        """As :meth:`rows`; ``further`` tensors, float32 or integers, come in the same copy."""
        ...


class Target(Protocol):
    """The target model with its KV cache and slots."""

    @property
    def info(self) -> TargetInfo: ...

    def open(self, capacity: int) -> int:
        """Reserve a slot for a request of up to ``capacity`` tokens; returns its number."""
        ...

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[TargetOutput]:
        """Cache every prompt and return its output.

        ``argmax`` and ``top_tokens`` cover all positions of the prompt if ``needs.prompt_rows``,
        else the last one. ``features`` always cover all positions, ``logits`` only the last.
        """
        ...

    def submit(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        numbers: NDArray[np.int64] | None = None,
    ) -> Submitted:
        """Begin to score every node of every tree in one forward pass.

        The cache is not advanced. ``numbers``, int64, are uploaded with the forward's own.
        """
        ...

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep the root and the nodes of each path (root excluded) of the last forward.

        The bonus token is not cached: it is the next tree's root.
        """
        ...

    def length(self, slot: int) -> int:
        """Number of tokens cached in the slot."""
        ...

    def keys_values(self, slots: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[b, heads, n, width]`` of the tokens cached in some slots, in a layer.

        n is the longest slot's length. What lies behind the tokens of a shorter one means nothing.
        They are to be read before the next call that changes the cache, and not to be changed. Of a
        layer that reads another's keys and values, they are the other's.

        Raises:
            DraftwoodError: this target has no keys and values.
        """
        ...

    def release(self, slot: int) -> None:
        """Give the slot back."""
        ...

    def trim(self) -> None:
        """Give back the memory of closed slots, if no slot is open."""
        ...

    def embedding(self) -> torch.nn.Module:
        """The module that turns token ids into ``[.., H]`` embeddings."""
        ...

    def lm_head(self) -> torch.nn.Module | None:
        """The module that turns the last hidden states into logits; None if it has no such part."""
        ...


@runtime_checkable
class PooledTarget(Target, Protocol):
    """A target whose requests may take blocks of one pool for their keys and values."""

    @property
    def block(self) -> int:
        """Tokens of a block; 0: there is no pool, and all requests take as much as the longest."""
        ...

    def allocate(self, tokens: int) -> None:
        """Make the pool of so many tokens at once when it is first used."""
        ...


@runtime_checkable
class SharedTarget(Target, Protocol):
    """A target that several processes may run together, each with a part of the weights.

    All of them make the same calls in the same order: each waits for the others' part.
    """

    @property
    def ranks(self) -> int:
        """The number of these processes; 1: this one has all weights."""
        ...

    def of_first(self, numbers: Sequence[float]) -> list[float]:
        """The first process's numbers, in each of them: what is timed differs between them."""
        ...


def shared(target: Target) -> SharedTarget | None:
    """The target, if several processes run it."""
    return target if isinstance(target, SharedTarget) and target.ranks > 1 else None


@runtime_checkable
class ResumableTarget(Target, Protocol):
    """A target that caches a prompt in pieces, and can begin with tokens that were cached before.

    The slot's cached tokens come before those that :meth:`Target.prefill` is given.
    """

    def prefill_piece(
        self,
        slots: Sequence[int],
        pieces: Sequence[Sequence[int]],
        needs: Needs,
        prompts: Sequence[int],
    ) -> list[TargetOutput]:
        """Cache the next tokens of each prompt; outputs as of :meth:`Target.prefill`.

        ``prompts`` are the lengths of the whole prompts: some rotary embeddings depend on them.
        """
        ...

    @property
    def most_within(self) -> int:
        """Tokens of prompts that a forward over trees may cache as well, for their memory."""
        ...

    def readable(self, slot: int, tokens: int) -> bool:
        """Whether :meth:`submit_with_pieces` can cache so many further tokens of the slot's prompt.

        Only where no mask or state would be needed for them. What they cost there, the target does
        not know.
        """
        ...

    def submit_with_pieces(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        pieces: Mapping[int, Sequence[int]],
    ) -> Submitted:
        """As :meth:`Target.submit`, over the next tokens of some prompts as well, by their slots.

        The outputs of the pieces are behind those of the trees. They are as of
        :meth:`prefill_piece`, but for logits of further positions. A piece is a tree too: it is
        cached by :meth:`Target.commit`, with a path of all its tokens but the first.
        """
        ...

    def savable(self, slot: int, length: int) -> int:
        """How many of a slot's first ``length`` tokens can be saved.

        None of them if their keys depend on how long the text is. With recurrent layers, as many as
        their states are known behind.
        """
        ...

    def saved(self, slot: int, length: int) -> SavedTokens:
        """A copy of a slot's first tokens, as many as :meth:`savable` says."""
        ...

    def restore(self, slot: int, saved: SavedTokens, length: int) -> None:
        """Begin an empty slot with the first of the saved tokens, as many as are restorable."""
        ...

    def lend(self, lender: int, slot: int, length: int) -> None:
        """Begin an empty slot with the first tokens of another one, as many as are savable.

        If there is no memory for it, the slot stays empty.
        """
        ...

    @property
    def remembered_bytes(self) -> int:
        """Bytes of the states that are kept of a text at most; 0: none have to be kept."""
        ...

    @property
    def weights_version(self) -> Hashable:
        """A value that differs if the weights have changed: saved tokens are of those before."""
        ...

    def remember(self, slot: int) -> None:
        """Keep states of recurrent layers of the slot's text, until it is released.

        They are kept within a prompt, and before its last token where that one is cached by itself.
        """
        ...
