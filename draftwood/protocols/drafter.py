"""The drafter, which proposes candidate tokens, and the host that gives it models.

A drafter does not load its model: its host returns a :class:`DraftModel` that runs trees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
)

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols.evidence import Evidence
from draftwood.protocols.settings import Part, settings
from draftwood.protocols.step import Outcome, Prefill
from draftwood.protocols.target import Needs, Target, TargetInfo, TargetOutput
from draftwood.tree import SAMPLED, Draw, TokenTree, TreeBuilder

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
M = TypeVar("M", bound="torch.nn.Module")

DraftDtype: TypeAlias = Literal["auto", "target", "float32", "bfloat16", "float16"]
"""The number format of a draft model's weights; see :mod:`draftwood.engine.draft_dtype`."""

DRAFT_DTYPE_HELP = (
    "number format of the weights; auto: the target's, but bfloat16 for more than 8 MB beside "
    "a float32 target on a CPU that multiplies bfloat16, and for EAGLE heads where kernels run"
)
"""What users are told about a setting of that type."""

MOST_READ: Final = 512
"""Most tokens of a request that a draft model reads in a step while others run.

Like a prompt's piece in the target, it holds the others up."""

OWN = "target"
"""The ``model`` of a drafter that drafts with layers of the target's own checkpoint."""


class DraftNoise(Protocol):
    """Random numbers of one step of one request, for sampling its draft."""

    def draft(self, lane: int) -> np.random.Generator:
        """A fresh generator; lanes (nodes of the growing tree) are independent."""
        ...

    def exponentials(self, depths: Sequence[int], size: int, device: torch.device) -> torch.Tensor:
        """The Exp(1) variates that draw the target's tokens after nodes at some depths.

        They are float64 ``[len(depths), size]``, on the device, and above 0. The token drawn is the
        one with the largest p / variate.
        """
        ...


@dataclass(frozen=True)
class Continuation:
    """Text copied from earlier in the context, proposed as a chain.

    Attributes:
        tokens: the continuation, first token first.
        match_length: length of the matched suffix in tokens (may exceed the query length).
        count: occurrences of the matched query that continued with the same first token.
        agreeing: number of query lengths whose continuation has the same first token.
    """

    tokens: tuple[int, ...]
    match_length: int
    count: int
    agreeing: int


@dataclass(frozen=True)
class Continue:
    """A policy's query for the continuations that ``source`` copies after the root.

    The answer is ``tuple[Continuation, ...]``, preferred first, with distinct first tokens.
    """

    source: str


@dataclass(frozen=True)
class Branches:
    """A policy's query for the tree that ``source`` copies after the root.

    The answer is ``tuple[tuple[int, ...], ...]``: paths of tokens from the root's child down,
    preferred first. They may share their first tokens.

    Attributes:
        source: name of the drafter, as the method binds it.
        nodes: most nodes that will be drafted of the tree.
        depth: deepest node that will be.
    """

    source: str
    nodes: int
    depth: int


@dataclass(frozen=True, eq=False)
class Expand:
    """A policy's query for the ``k`` best (or drawn) children of some nodes of a growing tree.

    Attributes:
        source: name of the drafter, as the method binds it.
        tree: the tree so far, which gives the path of every node; it only grows.
        nodes: ``m`` frontier nodes; the answer has their order.
        k: children per node.
        draw: ``ONE_HOT`` for the k likeliest, or how to sample.
        exclude: tokens that are excluded below each node (empty: none anywhere).
        temperature: of q, above 0.
        noise: for sampling; every node has random numbers of its own.
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

    Likeliest first or, if sampled, in drawing order.

    Attributes:
        tokens: int64 ``[m, k]``, ``-1`` if there is no further candidate.
        logq: float32 ``[m, k]``, natural log of the drafter's estimate (for a sampled child: of q
            before its siblings were removed); ``-inf`` without a candidate.
        q_rows: int64 ``[m]``, if sampled: handles for :meth:`Drafter.proposals`.
    """

    tokens: NDArray[np.int64]
    logq: NDArray[np.float32]
    q_rows: NDArray[np.int64] | None = None

    @staticmethod
    def none(query: Expand) -> Candidates:
        """The answer of a drafter that has no candidates; its arrays may be filled in."""
        shape = (len(query.nodes), query.k)
        q_rows = np.full(shape[0], -1) if query.draw in SAMPLED else None
        return Candidates(np.full(shape, -1), np.full(shape, -np.inf, dtype=np.float32), q_rows)


@dataclass(frozen=True, eq=False)
class Coding:
    """How a ranked token's code follows from its rank and its score.

    Attributes:
        first: code of a token of the least score, by rank; int64 ``[k]``.
        edges: natural logs of the scores at which a code ends, ascending; float64.
        stride: between two such codes.
    """

    first: NDArray[np.int64]
    edges: NDArray[np.float64]
    stride: int

    @cached_property
    def most(self) -> int:
        """Above all codes."""
        return 1 + int(self.first.max(initial=0)) + self.stride * len(self.edges)

    def codes(self, logq: NDArray[np.float32]) -> NDArray[np.int64]:
        """Codes of tokens by the logs ``[m, k]`` of their scores."""
        bins: NDArray[np.int64] = self.edges.searchsorted(logq, side="right")
        return bins * self.stride + self.first if self.stride > 1 else bins + self.first


@dataclass(frozen=True, eq=False)
class Describe:
    """A policy's query for what ``source`` says of nodes that other sources have drafted.

    The answer is their codes, ``list[int]``, or None from a drafter that only answers
    :class:`Expand`. 1: it knows successors of the parent, and not this one; -1: it knows none.

    Attributes:
        source: name of the drafter, as the method binds it.
        tree: the tree so far.
        nodes: of the tree, those of one parent one after another.
        k: successors of a parent that count.
        coding: of the drafter's tokens.
    """

    source: str
    tree: TreeBuilder
    nodes: Sequence[int]
    k: int
    coding: Coding


@dataclass(frozen=True, eq=False)
class Descend:
    """A policy's query for further ranked successors of nodes, level by level.

    Below each node come its successors that are likely enough, below these theirs, and so on. The
    answer is a :class:`Descent`, or None from a drafter that only answers :class:`Expand`.

    Attributes:
        source: name of the drafter, as the method binds it.
        tree: the tree so far.
        nodes: of the tree, ascending.
        children: that these have, in the order of their parents.
        paths: probability of each that it and all its ancestors are taken.
        k: children per node.
        coding: of the drafter's tokens.
        chances: probability that a token is taken if its parent is, by its code; float64
            ``[kinds, codes]``. Kind 0 is of a node below which no other source offers tokens, as
            below all new ones.
        kinds: of the nodes.
        floor: least path probability of a node, the root's children excepted.
        least: of the sum of a level's path probabilities; below it no further level follows.
        deepest: depth of the deepest useful node.
        room: most new nodes; of a level that has more, the likeliest are kept.
    """

    source: str
    tree: TreeBuilder
    nodes: Sequence[int]
    children: Sequence[int]
    paths: Sequence[float]
    k: int
    coding: Coding
    chances: NDArray[np.float64]
    kinds: Sequence[int]
    floor: float
    least: float
    deepest: int
    room: int


class Descent(NamedTuple):
    """A drafter's answer to :class:`Descend`: new nodes, parents before their children.

    Attributes:
        parents: of each, as the nodes of the tree that they are to be added to.
        tokens: of each.
        codes: of each.
        chances: of each, that it is taken if its parent is.
        paths: of each, that it and all its ancestors are taken.
        answered: nodes, old and new, of which the drafter knows successors, likely or not.
    """

    parents: list[int]
    tokens: list[int]
    codes: list[int]
    chances: list[float]
    paths: list[float]
    answered: list[int]


class Drafter:
    """A source of candidates, with an index, a table or a model's cache per slot.

    A drafter overrides :meth:`continuations` (it copies text), :meth:`branches` (it copies a tree)
    or :meth:`expand` (it proposes children of nodes), and with this :meth:`describe` and
    :meth:`descend` if it can propose several levels in less time. The defaults are those of a
    drafter without a model or state.
    """

    @property
    def needs(self) -> Needs:
        """Outputs of the target that this drafter learns from; none by default."""
        return Needs()

    at_once: ClassVar[bool] = False
    """Whether one forward of the model answers all queries of a step, whatever their depth."""

    @property
    def deepest(self) -> int | None:
        """Depth of the deepest nodes that it ever proposes; None: it has no bound."""
        return None

    @property
    def note(self) -> str:
        """What users should know of how the drafter fits the target; nothing by default."""
        return ""

    @property
    def forwards(self) -> int:
        """Number of draft forwards over trees so far; 0 without a model."""
        return 0

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in the cache of the drafter's model; 0 without a model."""
        return 0

    @property
    def slot_bytes(self) -> int:
        """Bytes of a request's recurrent states in the drafter's model; 0 without such layers."""
        return 0

    @property
    def node_bytes(self) -> int:
        """Bytes that these layers keep of a node until the tree is committed; 0 without them."""
        return 0

    def allocate(self, tokens: int) -> None:
        """Make the pool of the model's cache at once, as :meth:`DraftModel.allocate` does."""

    def trim(self) -> None:
        """Give back the memory of the model's cache; no request runs."""

    def backlog(self, slot: int) -> int:  # noqa: ARG002
        """Committed tokens, root excluded, that the draft model has not read; 0 without a model.

        It reads them when the request is asked about; see also :meth:`read_in_pieces`.
        """
        return 0

    def read_in_pieces(self) -> None:
        """From now on, read long backlogs in pieces while several requests run.

        That is at most :data:`MOST_READ` tokens of a request and a step, so that the others wait
        less. Nothing is proposed for a request that has further ones. So what is drafted depends on
        who else runs. By default there is nothing to read.
        """

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts in ``slot``, the target's; the slot's earlier state is dropped."""

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Learn from a committed step of the request in ``slot``."""

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Chains that follow the root of each slot, copied from its context; none by default."""
        return [() for _ in slots]

    def branches(
        self,
        slots: Sequence[int],
        queries: Sequence[Branches],  # noqa: ARG002
    ) -> list[tuple[tuple[int, ...], ...]]:
        """The paths of a tree that follows the root of each slot; see :class:`Branches`.

        By default these are the continuations. What a path has beyond the query's bounds is left
        out by whoever asked.
        """
        return [tuple(each.tokens for each in found) for found in self.continuations(slots)]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Answer one query per slot, together: one forward pass for a drafter with a model.

        By default no node has a candidate.
        """
        return [Candidates.none(query) for _, query in zip(slots, queries, strict=True)]

    def describe(
        self,
        slots: Sequence[int],  # noqa: ARG002
        queries: Sequence[Describe],
    ) -> Sequence[list[int] | None]:
        """Answer one query per slot; None where :meth:`expand` is to be asked.

        By default that is everywhere.
        """
        return [None] * len(queries)

    def descend(
        self,
        slots: Sequence[int],  # noqa: ARG002
        queries: Sequence[Descend],
    ) -> Sequence[Descent | None]:
        """Answer one query per slot; None where :meth:`expand` is to be asked for each level.

        By default that is everywhere.
        """
        return [None] * len(queries)

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """Distributions that this step's sampled children were drawn from, by handle.

        Float32 ``[n, V]`` over the target's vocabulary, on its device. Excluded tokens have
        probability 0; siblings are not removed.

        Raises:
            DraftwoodError: the drafter samples nothing.
        """
        raise DraftwoodError(f"{type(self).__name__} samples no candidates: they are one-hot")

    def cut(self, slot: int, tokens: int) -> None:
        """The request in ``slot`` has ended: its text is without the last ``tokens`` committed.

        Its end is known only after the step was learnt from. A drafter that keeps the text for
        other requests leaves them out; by default nothing is kept.
        """

    def release(self, slot: int) -> None:
        """Forget the request in ``slot``, which has ended."""


class DraftModel(Protocol):
    """A model run level by level over growing trees, with a cache and slots of its own.

    Node 0 of a tree follows the slot's cached tokens. ``done`` is the number of nodes of each tree
    that were scored since the last :meth:`commit`: they are cached, and rows are returned for the
    other nodes only.

    ``hidden`` is for models that take a vector beside each token, such as an EAGLE head: ``[m, H]``
    for the m new nodes of each tree (or tokens of each prompt). The ``features`` of such a model
    are the vectors that it outputs.

    ``unread`` is the number of new nodes of each tree, its first ones, that no row is returned for:
    text that is only to be cached.
    """

    @property
    def info(self) -> TargetInfo: ...

    def open(self, capacity: int) -> int:
        """Reserve a slot for up to ``capacity`` tokens (it grows as needed); returns its number."""
        ...

    def allocate(self, tokens: int) -> None:
        """Make the pool of so many tokens at once when it is first used, if there is one."""
        ...

    def trim(self) -> None:
        """Give back the memory of closed slots, if no slot is open."""
        ...

    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
    ) -> list[TargetOutput]:
        """Append every prompt to its slot, in chunks, with logits of the last rows only.

        See :meth:`draftwood.protocols.Target.prefill`.
        """
        ...

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
        unread: Sequence[int] = (),
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


class Translation(Protocol):
    """Translates between a target's tokens and those of a draft model with another tokenizer.

    The draft model may propose the tokens that both have. It reads any text, which may have another
    number of tokens there. Bytes of a character that is not complete may be *held*: each call
    returns those that are, and the next one is given them.
    """

    @property
    def to_target(self) -> NDArray[np.int64]:
        """int64 ``[Vd]``: the target's token of each of the draft model's, -1 if it has none."""
        ...

    @property
    def note(self) -> str:
        """The share of the vocabularies that the draft model proposes, for users."""
        ...

    def begin(self, tokens: Sequence[int]) -> tuple[list[int], bytes]:
        """The draft tokens of a prompt, one or more, and the bytes that are held."""
        ...

    def read(self, tokens: Sequence[int], held: bytes = b"") -> tuple[list[int], bytes]:
        """The draft tokens of generated tokens, none or more, and the bytes that are held."""
        ...

    def depths(self, tree: TreeBuilder) -> Sequence[int]:
        """The number of draft tokens from the root to each node, the root excluded."""
        ...


@dataclass(frozen=True, eq=False)
class Mask:
    """What a model reads in place of a token that is not known yet.

    Attributes:
        token: the model's id of it.
        vector: ``[H]``, the vector beside it; None if the model takes none.
    """

    token: int
    vector: torch.Tensor | None = None


class DraftHead(Protocol):
    """A head on the target's features; a :class:`DraftModel` runs it."""

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose entering hidden states the head reads, in this order."""
        ...

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """The head's vectors ``[.., H]`` for the target's features ``[.., taps * Ht]``."""
        ...

    def target_ids(self) -> NDArray[np.int64]:
        """The target's id of each output of the head."""
        ...

    @property
    def mask(self) -> Mask | None:
        """What the head was trained to read in place of drafted tokens; None: their own output."""
        ...


@dataclass(frozen=True)
class Learnt:
    """The key, for :meth:`Host.share`, of an object that learns from the steps of engines.

    Engines on one host go on with what others have learnt. A replay has objects of its own for each
    load, over all its prompts.

    Attributes:
        of: what the object is about.
    """

    of: Hashable


class Host(Protocol):
    """The target and the models that a drafter may use."""

    @property
    def info(self) -> TargetInfo:
        """The target's facts."""
        ...

    @property
    def target(self) -> Target:
        """The target itself."""
        ...

    def model(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftModel, Translation | None]:
        """A causal language model on the target's device, and how its tokens are translated.

        The translation is None if its token ids are the target's.

        Args:
            name: what :func:`draftwood.models.load` takes, or a loaded transformers model.
            dtype: of its weights (:func:`draftwood.engine.draft_dtype.load_in`); a loaded model
                keeps its own.

        Raises:
            DraftwoodError: it cannot be loaded, cannot run trees, or shares too few of the target's
                tokens.
        """
        ...

    def head(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftHead, DraftModel]:
        """An EAGLE or P-EAGLE head, which shares the target's embedding unless it has its own.

        Args:
            name: ``"embedded-eagle3"``, a directory, a hub id, or a loaded head.
            dtype: see :meth:`model`; a head that shares the target's ``lm_head`` has its dtype.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        ...

    def loaded(
        self,
        load: Callable[[str, Target, torch.dtype], M],
        name: Any,
        dtype: DraftDtype = "auto",
    ) -> M:
        """A module that drafts for the target, on its device; drafters share it.

        Args:
            load: reads that of a directory or hub id for a target, with weights in a dtype.
            name: a directory, a hub id, or the module itself.
            dtype: see :meth:`model`.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        ...

    @property
    def vocabulary(self) -> str:
        """Digest of the target's tokens and their ids; empty without a tokenizer.

        See :func:`draftwood.models.vocabulary_digest`.
        """
        ...

    def encode(self, text: str) -> Sequence[int]:
        """The target's token ids of a text, without special tokens.

        Raises:
            DraftwoodError: there is no tokenizer.
        """
        ...

    def identity(self, name: Any, dtype: DraftDtype = "auto") -> str:
        """A digest of the configuration of a model or head, and its ``dtype`` (:meth:`model`).

        Empty for a loaded object.
        """
        ...

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """The object shared under ``key``; ``make`` creates it on first use."""
        ...


class DrafterSpec(Part, ABC):
    """The frozen settings of a drafter; the fields are command-line flags.

    The defaults are those of a drafter that ranks candidates without a model.
    """

    draws: ClassVar[frozenset[Draw]] = frozenset({Draw.ONE_HOT})
    """The ways in which the drafter can choose children."""

    summary: ClassVar[str] = ""
    """What the drafter proposes, in one line."""

    evidence: ClassVar[Evidence] = Evidence()
    """What the drafter says of its candidates, for ``auto``; by default nothing."""

    remembers: ClassVar[bool] = False
    """Whether the drafter drafts from the text of earlier requests of a namespace."""

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:  # noqa: ARG003
        """Whether a directory with this ``config.json`` holds a model of this drafter.

        Asked of drafters whose model is named by an option of several drafters.
        """
        return False

    @property
    def model(self) -> Any:
        """The draft model, by name or loaded; None if the drafter has none."""
        return None

    @property
    def dtype(self) -> DraftDtype:
        """The number format of the draft model's weights."""
        return "auto"

    @property
    def missing(self) -> str:
        """Name of the setting without which there is nothing to draft from; empty: none is missing.

        By default it is a model that has no default. :meth:`build` refuses such settings. What runs
        a method says so before it loads a model.
        """
        models = (each for each in settings(type(self)) if each.flag and each.default == "")
        return next((each.name for each in models if getattr(self, each.name) == ""), "")

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
