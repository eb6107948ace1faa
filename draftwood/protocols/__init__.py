"""The four seams of Draftwood, and the small frozen values that pass between them.

A *drafter* offers candidate tokens, a *policy* arranges them into a tree, a *target* scores the
whole tree in one forward pass, a *verifier* says which path is kept. Everything else in the
package either implements one of these or drives them. Nothing here computes anything.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols.bids import Bid, Outlook, Price
from draftwood.tree import Draw, TokenTree, TreeBuilder

if TYPE_CHECKING:
    import torch

# --- what a target returns ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows:
    """The target's raw logits after ``n`` tokens (nodes of one tree, or prompt positions).

    Attributes:
        logits: float ``[n, V]`` on the target's device, before any processor. After a prefill
            only the last position's row is kept: ``[1, V]``.
        argmax: int64 ``[n]`` on the host; the first index of the largest logit, -1 where a logit of
            the row is not a number.
        top_tokens: int64 ``[n, k]`` on the host, likeliest first (``k`` may be 0).
        top_probs: float32 ``[n, k]``, their softmax probabilities.
        features: ``[n, taps * H]`` hidden states entering the tapped layers, or None.
    """

    logits: torch.Tensor
    argmax: NDArray[np.int64]
    top_tokens: NDArray[np.int64]
    top_probs: NDArray[np.float32]
    features: torch.Tensor | None = None


@dataclass(frozen=True)
class Needs:
    """What a drafter wants computed beyond the logits of the tree.

    Attributes:
        top_k: how many best tokens of every row to hand over (0: none).
        prompt_rows: whether rows of the prompt's positions are wanted as well.
        taps: target layers whose input features are wanted, in this order.
    """

    top_k: int = 0
    prompt_rows: bool = False
    taps: tuple[int, ...] = ()

    def __or__(self, other: Needs) -> Needs:
        taps = self.taps or other.taps
        if other.taps not in (taps, ()):
            raise DraftwoodError(
                f"two drafters read different layers of the target, {taps} and {other.taps}; "
                "use one of them"
            )
        most = max(self.top_k, other.top_k)
        return Needs(most, self.prompt_rows or other.prompt_rows, taps)


@dataclass(frozen=True)
class Origin:
    """What a model's configuration says of the family that it belongs to.

    Attributes:
        name: directory or hub id that the model was loaded from; empty if it was made otherwise.
        family: the configuration's ``model_type``, of the text part.
        begins: id of the token that begins a text, or None.
        ends: ids of the tokens that end one, ascending.
    """

    name: str
    family: str
    begins: int | None
    ends: tuple[int, ...]


@dataclass(frozen=True)
class TargetInfo:
    """What the parts may know of the target model.

    ``context_limit`` is the longest sequence the model's positions reach, in tokens; ``identity``
    is a digest of its configuration, empty if nothing is to be remembered of it; ``origin`` says
    where it comes from, if that is known. ``eos`` are the token ids that end its sequences, none if
    the model names none.
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


class Target(Protocol):
    """Owns the model's weights, the cache and its slots."""

    @property
    def info(self) -> TargetInfo: ...

    def open(self, capacity: int) -> int:
        """Reserve a slot for a request that will cache up to ``capacity`` tokens; its number."""
        ...

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[Rows]:
        """Cache every prompt and return its rows.

        ``argmax`` and ``top_tokens`` cover all positions of the prompt if ``needs.prompt_rows``,
        else the last one only; ``features`` always do, ``logits`` is always the last one.
        """
        ...

    def forward(self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs) -> list[Rows]:
        """Score every node of every tree in one forward pass. The cache is not advanced."""
        ...

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep the root and the nodes of each path (root excluded) of the last forward.

        The bonus token is not cached: it is the next tree's root.
        """
        ...

    def length(self, slot: int) -> int:
        """Number of tokens cached in the slot."""
        ...

    def release(self, slot: int) -> None:
        """Give the slot back."""
        ...

    def embedding(self) -> torch.nn.Module:
        """The module that turns token ids into ``[.., H]`` embeddings."""
        ...

    def lm_head(self) -> torch.nn.Module | None:
        """The module that turns the last hidden states into logits; None if it has no such part."""
        ...


# --- what passes through a step -------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A verifier's answer: accepted nodes from the root's child down, and the bonus token."""

    path: tuple[int, ...]
    bonus: int


@dataclass(frozen=True, eq=False)
class Prefill:
    """What a drafter and a policy learn when a request begins.

    Attributes:
        prompt: int64 ``[n]`` token ids.
        first: the token that the prefill yielded (the first tree's root).
        rows: the target's rows (all positions only if some drafter needs them).
    """

    prompt: NDArray[np.int64]
    first: int
    rows: Rows


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a drafter and a policy learn from a finished step.

    Attributes:
        tree: the tree that was verified.
        path: accepted nodes, root excluded.
        committed: tokens committed: the path's, then the bonus (the next root).
        rows: the target's rows of all nodes, rejected ones included.
    """

    tree: TokenTree
    path: tuple[int, ...]
    committed: tuple[int, ...]
    rows: Rows


# --- drafters -------------------------------------------------------------------------------------


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


Query: TypeAlias = Continue | Expand | Bid
Answer: TypeAlias = tuple[Continuation, ...] | Candidates | Price


class Drafter(Protocol):
    """Owns an index, a table or a model's cache, kept apart per slot."""

    @property
    def needs(self) -> Needs:
        """What the target must hand over for this drafter to learn."""
        ...

    @property
    def forwards(self) -> int:
        """Forward passes of a model of its own over drafted trees so far; 0 without a model."""
        ...

    def backlog(self, slot: int) -> int:
        """Committed tokens, the root aside, that a model of its own must read before it drafts in
        ``slot``; 0 without a model."""
        ...

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts in ``slot``; whatever was there before is forgotten."""
        ...

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step of the request in ``slot`` has been committed."""
        ...

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """What follows the root of each slot, copied from its context; empty tuples if nothing."""
        ...

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Answer one query per slot, together: one forward pass for a drafter with a model."""
        ...

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        """What this step's sampled children were drawn from, by handle: float32 ``[n, V]``.

        Over the target's vocabulary, on its device; excluded tokens have probability 0, and
        siblings are still in.
        """
        ...

    def release(self, slot: int) -> None:
        """The request in ``slot`` has ended."""
        ...


# --- policies -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    """What a policy may know when it grows a tree.

    Attributes:
        anchor: the root's token.
        room: deepest useful node: drafted tokens deeper than this could never be committed,
            because the request or the model's context ends before.
        budget: most nodes to draft, root excluded.
        temperature: the request's; at 0 a draft is best not sampled.
        noise: for the queries of a policy that samples.
        outlook: what to expect of this step, if the engine learns it.
    """

    anchor: int
    room: int
    budget: int
    temperature: float = 0.0
    noise: DraftNoise | None = None
    outlook: Outlook | None = None


Grower: TypeAlias = Generator[Query, Any, TokenTree]
"""A running policy: yields queries, is sent the matching answers, returns the tree."""


class Policy(Protocol):
    """Shapes the tree of ONE sequence; pure: no model, no hidden state, no global randomness.

    A frozen dataclass whose fields are command-line flags. ``budget`` is one of them.
    """

    @property
    def budget(self) -> int:
        """Most nodes drafted in a step, root excluded."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the drafters it queries, the quick ones first: in a batch the others wait."""
        ...

    @property
    def draws(self) -> frozenset[Draw]:
        """How the nodes it keeps were drawn; nothing is selected after drawing."""
        ...

    @property
    def branching(self) -> bool:
        """Whether a node may have several children."""
        ...

    def start(self) -> Any:
        """The state of a request that begins (immutable; kept by the engine)."""
        ...

    def grow(self, growth: Growth, state: Any) -> Grower:
        """Grow one tree."""
        ...

    def learn(self, state: Any, outcome: Outcome) -> Any:
        """The state after a step."""
        ...


# --- verifiers ------------------------------------------------------------------------------------


class DraftNoise(Protocol):
    """Random numbers of one step of one request, for sampling its draft."""

    def draft(self, lane: int) -> np.random.Generator:
        """A fresh generator; lanes (nodes of the growing tree) are independent."""
        ...

    def clocks(self, depth: int, size: int) -> NDArray[np.float64]:
        """The numbers ``[size]``, above 0, that the target's token after a node at ``depth`` is
        drawn with: it is the one of the largest p / clock."""
        ...


class Noise(Protocol):
    """Random decisions of one step of one request, keyed by absolute position."""

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        """The token that follows a node at ``depth``, drawn as ``weights`` ``[V]`` say."""
        ...

    def accepts(self, node: int, probability: float) -> bool:
        """True with that probability; to be asked once a node."""
        ...


class Distributions(Protocol):
    """The target's distribution p after each node of a tree, processors applied along its path."""

    def draw(self, node: int, noise: Noise) -> int:
        """The token that follows ``node``, drawn from p (the argmax at temperature 0)."""
        ...

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """p as float32 ``[n, V]`` on the target's device (one-hot at temperature 0); read only."""
        ...


class Proposals(Protocol):
    """The drafters' distributions q that the sampled nodes of a tree were drawn from."""

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """q as float32 ``[n, V]`` on the target's device, earlier siblings still in; read only."""
        ...


@dataclass(frozen=True, eq=False)
class Case:
    """A drafted tree to be judged: what the target says of it, how it was drawn, and chance."""

    tree: TokenTree
    p: Distributions
    q: Proposals
    noise: Noise


class Verifier(Protocol):
    """The accept rule; pure."""

    @property
    def accepts(self) -> frozenset[Draw]:
        """The kinds of nodes for which the rule is lossless."""
        ...

    @property
    def branching(self) -> bool:
        """Whether the rule is lossless below nodes with several children."""
        ...

    def verify(self, cases: Sequence[Case]) -> list[Verdict]:
        """Choose the accepted path and the bonus token of each tree of a batch.

        In a tree without sampled nodes these are the target's own draws, one after the other from
        the root, so that a seed's tokens are those of plain decoding.
        """
        ...
