"""The policy, which arranges candidates into a tree, and the tuner that it may have."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeAlias

from draftwood.errors import DraftwoodError
from draftwood.protocols.drafter import (
    Branches,
    Built,
    Candidates,
    Continuation,
    Continue,
    Descend,
    Descent,
    Describe,
    DraftNoise,
    Expand,
    Host,
)
from draftwood.protocols.settings import Asked, Part, settings
from draftwood.protocols.step import Outcome, Prediction, RequestLoad, StepTimes
from draftwood.protocols.target import Needs
from draftwood.tree import Draw, TokenTree


class Price(NamedTuple):
    """The tuner's answer to all bids of a step, the same for all its requests.

    Attributes:
        least: lowest value of a candidate that is verified (:attr:`Bid.values`).
    """

    least: float


FREE = Price(0.0)
"""The price at which every candidate is drafted."""

NOTHING_PAYS = Price(math.inf)
"""The price at which no candidate is drafted."""


@dataclass(frozen=True, eq=False)
class Bid:
    """A policy's query: which of its candidates pay? Answered with a :class:`Price`.

    Attributes:
        values: expected tokens that each of the likeliest candidates adds, weighted by its
            request's token weight: of settled ones, then of the others, best first; no more than
            the policy would draft.
        settled: nodes that are drafted whatever the price.
        levels: nodes of each draft forward that was spent on the candidates, by source.
        report: the policy's record of its candidates. Only its own tuner reads it.
    """

    values: Sequence[float]
    settled: int = 0
    levels: Mapping[str, Sequence[int]] = field(default_factory=dict)
    report: Any = None


@dataclass(frozen=True, eq=False)
class LevelBid:
    """What a request expects of one draft level of one source.

    Tokens are weighted by the request's token weight.

    Attributes:
        source: name of the drafter.
        gains: expected tokens that asking about each node adds, best first.
        further: what the request pays to take part in the forward at all, in expected tokens.
    """

    source: str
    gains: Sequence[float]
    further: float = 0.0


@dataclass(frozen=True, eq=False)
class LevelBids:
    """A policy's query: which source drafts a level, of how many nodes? Answered with a Level.

    Attributes:
        bids: one for each source that could draft a level; one or more.
    """

    bids: Sequence[LevelBid]


class Level(NamedTuple):
    """The answer to :class:`LevelBids`.

    Attributes:
        source: the source that was decided on.
        width: number of nodes to ask it about, the best ones; 0: it does not pay in this step.
    """

    source: str
    width: int


Query: TypeAlias = Continue | Branches | Expand | Describe | Descend | LevelBids | Bid
Answer: TypeAlias = (
    tuple[Continuation, ...]
    | tuple[tuple[int, ...], ...]
    | Candidates
    | list[int]
    | Descent
    | Level
    | Price
)


@dataclass(frozen=True)
class Growth:
    """The facts that a policy grows a tree from.

    Attributes:
        anchor: the root's token.
        room: deepest useful node: drafted tokens deeper than this could never be committed,
            because the request or the model's context ends before.
        budget: most nodes to draft, root excluded.
        temperature: the request's; at 0 a draft is best not sampled.
        noise: for the queries of a policy that samples.
        forecast: the frozen snapshot that the policy's tuner made for this step; None without a
            tuner.
        constrained: whether the request has a grammar.
    """

    anchor: int
    room: int
    budget: int
    temperature: float = 0.0
    noise: DraftNoise | None = None
    forecast: Any = None
    constrained: bool = False


Grower: TypeAlias = Generator[Query, Any, TokenTree]
"""A running policy: yields queries, is sent the matching answers, returns the tree."""


class Policy(Part, ABC):
    """Shapes the tree of ONE sequence; pure: no model, no hidden state, no global randomness.

    A frozen dataclass whose fields are settings (:func:`draftwood.protocols.settings.setting`).
    The defaults are those of a policy that ranks candidates and learns nothing.

    Raises:
        DraftwoodError: a setting is out of range, or two sources have one name.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        names = _source_fields(type(self))
        for twice in {getattr(self, name) for name in names} - {""}:
            same = [name for name in names if getattr(self, name) == twice]
            if len(same) > 1:
                raise DraftwoodError(
                    f'{" and ".join(same)} are both "{twice}"; name different ones'
                )

    @property
    def budget(self) -> int:
        """Most nodes drafted in a step, root excluded; a setting of every policy that drafts."""
        return 0

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the drafters it queries, the quick ones first: in a batch the others wait.

        By default those that its settings with a ``source`` name, in order; "" names none.
        """
        names = (getattr(self, name) for name in _source_fields(type(self)))
        return tuple(name for name in names if name)

    @property
    def asks(self) -> Mapping[str, Asked]:
        """What it asks its sources for, by their names.

        A drafter that never answers that is refused. By default that is what the settings with a
        ``source`` say. A source that is not in it may be any drafter.
        """
        fields = _source_fields(type(self)).items()
        named = {getattr(self, name): asked for name, asked in fields}
        return {name: asked for name, asked in named.items() if name in self.sources}

    @property
    def grammar_sources(self) -> tuple[str, ...]:
        """Registered drafters that it queries as well, by their names, where there is a grammar.

        They are built with their default settings. None by default.
        """
        return ()

    @property
    def own_sources(self) -> tuple[str, ...]:
        """Names of the sources of nodes that it drafts itself, from its state; none by default."""
        return ()

    @property
    def needs(self) -> Needs:
        """Outputs of the target that it learns from, beside its draws; none by default."""
        return Needs()

    @property
    def draws(self) -> frozenset[Draw]:
        """The kinds of nodes in its trees; nothing is selected after drawing."""
        return frozenset({Draw.ONE_HOT})

    @property
    def branching(self) -> bool:
        """Whether a node may have several children."""
        return True

    def start(self) -> Any:
        """The state of a request that begins (immutable; stored by the engine)."""
        return None

    @abstractmethod
    def grow(self, growth: Growth, state: Any) -> Grower:
        """Grow one tree."""

    def learn(self, state: Any, outcome: Outcome) -> Any:  # noqa: ARG002
        """The state after a step."""
        return state

    def adopts(self, shipped: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        """Settings that the method takes from what is shipped for the target's model.

        By name as on the command line; the policy's own come last. None by default.

        Args:
            shipped: what a setting takes, by kind: ``"head"``, ``"table"``, ``"calibration"``.
        """
        return {}

    @property
    def weighs_costs(self) -> bool:
        """Whether its trees depend on the costs of a step, which its tuner knows."""
        return False

    def tuner(self, host: Host, drafters: Mapping[str, Built]) -> Tuner | None:  # noqa: ARG002
        """A fresh tuner for an engine with these drafters, by source name; None: no tuner.

        Raises:
            DraftwoodError: a file that the tuner starts from cannot be used.
        """
        return None


@cache
def _source_fields(policy: Any) -> Mapping[str, Asked]:
    """What a policy's settings that name a drafter ask it for, by the settings' names."""
    return {each.name: each.source for each in settings(policy) if each.source}


@dataclass(frozen=True, eq=False)
class StepReport:
    """A finished step of the whole batch, for the tuner.

    Attributes:
        bids: by request; None where the policy did not bid, or the request failed.
        outcomes: by request.
        times: of the step so far; learning by the tuner itself is not in it.
        recorded: whether a forward was recorded meanwhile, or ran in larger shapes than its own or
            twice, so that the times are no later step's.
        search: seconds of the draft phase before the first bids for a draft level; None: there were
            no such bids.
        prompt_tokens: of prompts, which the target's forward has cached as well.
    """

    bids: Sequence[Bid | None]
    outcomes: Sequence[Outcome]
    times: StepTimes
    recorded: bool = False
    search: float | None = None
    prompt_tokens: int = 0

    @property
    def typical(self) -> bool:
        """Whether the times are those of a step of its size: it did nothing else."""
        return not self.recorded and not self.prompt_tokens


def first_source(bids: Mapping[str, Sequence[LevelBid]]) -> tuple[str, list[int]]:
    """The first source, for all nodes below which it may gain something."""
    source, own = next(iter(bids.items()))
    return source, [sum(gain > 0.0 for gain in bid.gains) for bid in own]


class Tuner(Protocol):
    """Learns from an engine's steps how often candidates are accepted and what a step costs."""

    def begin(self, loads: Sequence[RequestLoad]) -> Sequence[Any]:
        """The forecast for each request of a step that begins; :attr:`Growth.forecast` holds it."""
        ...

    def levels(self, bids: Mapping[str, Sequence[LevelBid]]) -> tuple[str, Sequence[int]]:
        """The source that drafts a level next, and how many nodes each of its bids is for.

        By default :func:`first_source`, for a policy whose levels nobody decides on.

        Args:
            bids: by source, those of all requests that could take part in its next forward.
        """
        return first_source(bids)

    def price(self, bids: Sequence[Bid]) -> Price:
        """The answer to all bids of the step."""
        ...

    def observe(self, report: StepReport) -> list[Prediction | None]:
        """Learn from a step; returns the prediction for each request, None without a bid."""
        ...

    @property
    def recent_price(self) -> float | None:
        """Probability from which on one more node paid in recent steps; None: not known.

        Another thread may ask.
        """
        return None

    def reads_within(self, tokens: int) -> None:  # noqa: ARG002
        """Note how many tokens of prompts the target's forward of the step that begins caches."""
        return

    def observe_prompt(self, tokens: int, seconds: float) -> None:  # noqa: ARG002
        """Learn from a forward that cached so many tokens of prompts."""
        return

    def prompt_piece(self) -> int | None:
        """Prompt tokens to cache between two steps of the requests that run; None: not known."""
        return None

    def prompt_piece_within(self) -> int | None:
        """Prompt tokens to cache in the target's forward of a step; None: not known.

        0: they cost less between two steps.
        """
        return None
