"""The drafter: offers candidate tokens; and the host that hands it the models it runs.

A drafter with a model neither loads it nor knows how trees run on it: its host hands it a
:class:`DraftModel`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols.settings import Part
from draftwood.protocols.step import Outcome, Prefill
from draftwood.protocols.target import Needs, Target, TargetInfo, TargetOutput
from draftwood.tree import Draw, TokenTree, TreeBuilder

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class DraftNoise(Protocol):
    """Random numbers of one step of one request, for sampling its draft."""

    def draft(self, lane: int) -> np.random.Generator:
        """A fresh generator; lanes (nodes of the growing tree) are independent."""
        ...

    def exponentials(self, depth: int, size: int) -> NDArray[np.float64]:
        """The numbers ``[size]``, above 0, that the target's token after a node at ``depth`` is
        drawn with: it is the one of the largest p / clock."""
        ...


@dataclass(frozen=True)
class Continuation:
    """Text copied from earlier in the context, offered as a chain.

    Attributes:
        tokens: the continuation, first token first.
        match_length: length of the suffix that matched, in tokens (may exceed the query length).
        count: occurrences of the matched query that continued with the same first token.
        agreeing: how many of the query lengths offer the same first token.
    """

    tokens: tuple[int, ...]
    match_length: int
    count: int
    agreeing: int


@dataclass(frozen=True)
class Continue:
    """A policy's query: what does ``source`` copy after the root? Answered with
    ``tuple[Continuation, ...]``, the preferred one first, first tokens distinct."""

    source: str


@dataclass(frozen=True, eq=False)
class Expand:
    """A policy's query: the ``k`` best (or drawn) children of some nodes of a growing tree.

    Attributes:
        source: name of the drafter, as the method binds it.
        tree: the tree so far; it names the path of every node, and only ever grows.
        nodes: frontier nodes, ``m`` of them, to be answered in this order.
        k: children wanted for each.
        draw: ``ONE_HOT`` for the k likeliest, or how to sample.
        exclude: tokens that may not be offered below each node (empty: none anywhere).
        temperature: of q, above 0.
        noise: for sampling, which every node does with numbers of its own.
    """

    source: str
    tree: TreeBuilder
    nodes: Sequence[int]
    k: int
    draw: Draw = Draw.ONE_HOT
    exclude: Sequence[frozenset[int]] = ()
    temperature: float = 1.0
    noise: DraftNoise | None = None


@dataclass(frozen=True, eq=False)
class Candidates:
    """A drafter's answer to :class:`Expand`: ``m`` rows of at most ``k`` children.

    Likeliest first or, if sampled, in the order in which they were drawn.

    Attributes:
        tokens: int64 ``[m, k]``, ``-1`` where there is no further candidate.
        logq: float32 ``[m, k]``, natural log of the drafter's estimate (of a sampled child: of q
            before its siblings were taken out); ``-inf`` where none.
        q_rows: int64 ``[m]``: if sampled, handles for :meth:`Drafter.proposals`.
    """

    tokens: NDArray[np.int64]
    logq: NDArray[np.float32]
    q_rows: NDArray[np.int64] | None = None

    @staticmethod
    def none(query: Expand) -> Candidates:
        """The answer of a drafter that has no candidates."""
        shape = (len(query.nodes), query.k)
        return Candidates(np.full(shape, -1), np.full(shape, -np.inf, dtype=np.float32))


class Drafter:
    """Owns an index, a table or a model's cache, kept apart per slot.

    A drafter overrides :meth:`continuations` (it copies text) or :meth:`expand` (it offers children
    of nodes). The defaults are those of one without a model and without memory.
    """

    @property
    def needs(self) -> Needs:
        """What the target must hand over for this drafter to learn; by default nothing."""
        return Needs()

    @property
    def forwards(self) -> int:
        """Forward passes of a model of its own over drafted trees so far; 0 without a model."""
        return 0

    def backlog(self, slot: int) -> int:  # noqa: ARG002
        """Committed tokens, the root aside, that a model of its own must read before it drafts in
        ``slot``; 0 without a model."""
        return 0

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts in ``slot``; whatever was there before is forgotten."""

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step of the request in ``slot`` has been committed."""

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Chains that follow the root of each slot, copied from its context; none by default."""
        return [() for _ in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Answer one query per slot, together: one forward pass for a drafter with a model.

        By default no node has a candidate.
        """
        return [Candidates.none(query) for _, query in zip(slots, queries, strict=True)]

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """Distributions that this step's sampled children were drawn from, by handle.

        Float32 ``[n, V]`` over the target's vocabulary, on its device; excluded tokens have
        probability 0, and siblings are still in.

        Raises:
            DraftwoodError: the drafter samples nothing.
        """
        raise DraftwoodError(f"{type(self).__name__} samples no candidates: they are one-hot")

    def release(self, slot: int) -> None:
        """The request in ``slot`` has ended."""


class DraftModel(Protocol):
    """A model run level by level over growing trees, with a cache and slots of its own.

    A tree's nodes are given in the order in which they were added, and node 0 follows what its slot
    holds. ``done`` says how many nodes of each tree earlier calls since the last :meth:`commit`
    have scored: these are in the cache already, and rows are returned for the others only.

    ``hidden`` is for models that are given a vector beside each token, such as an EAGLE head:
    ``[m, H]`` for the m new nodes of each tree (or tokens of each prompt); such a model's
    ``features`` are the vectors that it yields in turn.
    """

    @property
    def info(self) -> TargetInfo: ...

    def open(self, capacity: int) -> int:
        """Reserve a slot for up to ``capacity`` tokens (it grows if need be); its number."""
        ...

    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
    ) -> list[TargetOutput]:
        """Cache every prompt behind what its slot holds, in chunks and with logits of their last
        rows only; see :meth:`draftwood.protocols.Target.prefill`."""
        ...

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
    ) -> list[TargetOutput]:
        """Score the new nodes of every tree in one forward pass; each tree has one or more."""
        ...

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep node 0 and the nodes of each path (node 0 excluded)."""
        ...

    def length(self, slot: int) -> int:
        """Number of tokens cached in the slot."""
        ...

    def release(self, slot: int) -> None:
        """Give the slot back."""
        ...


class Head(Protocol):
    """What a drafter knows of a head on the target, beside running it as a :class:`DraftModel`."""

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose entering hidden states it reads, in this order."""
        ...

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Its vectors ``[.., H]`` for the target's features ``[.., taps * Ht]``."""
        ...

    def target_ids(self) -> NDArray[np.int64]:
        """The target's id of each of its output ids."""
        ...


class Host(Protocol):
    """What a drafter may ask of the place where it is built."""

    @property
    def info(self) -> TargetInfo:
        """The target's facts."""
        ...

    @property
    def target(self) -> Target:
        """The target itself."""
        ...

    def model(self, name: Any) -> DraftModel:
        """A causal language model with the target's vocabulary, on the target's device.

        Args:
            name: what :func:`draftwood.models.load` takes, or a loaded transformers model.

        Raises:
            DraftwoodError: it cannot be loaded, cannot run trees, or has another vocabulary.
        """
        ...

    def head(self, name: Any) -> tuple[Head, DraftModel]:
        """An EAGLE-3 head, which shares the target's embedding unless it has its own.

        Args:
            name: ``"embedded-eagle3"``, a directory, a hub id, or a loaded head.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        ...

    def identity(self, name: Any) -> str:
        """A digest of the configuration of a model or head; empty for an object, which has no name
        to be remembered by."""
        ...

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """The object that this host keeps under ``key``; ``make`` makes it on first use."""
        ...


class DrafterSpec(Part, ABC):
    """The frozen settings of a drafter; its fields are command-line flags.

    The defaults are those of a drafter that ranks candidates without a model.
    """

    draws: ClassVar[frozenset[Draw]] = frozenset({Draw.ONE_HOT})
    """How it can be asked to choose children."""

    @property
    def model(self) -> Any:
        """The model that it asks its host for, by name or loaded; None if it has none."""
        return None

    @abstractmethod
    def build(self, host: Host) -> Drafter:
        """A fresh drafter.

        Raises:
            DraftwoodError: the settings do not fit the target.
        """


@dataclass(frozen=True, eq=False)
class Built:
    """A drafter and the settings it was built from."""

    spec: DrafterSpec
    drafter: Drafter
