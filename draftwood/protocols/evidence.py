"""The evidence of a source: what it says of a candidate token, as a few bounded features.

``auto`` learns how much each value of it says about a candidate's acceptance. A drafter declares
its evidence in its settings (:attr:`draftwood.protocols.DrafterSpec.evidence`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from draftwood.errors import DraftwoodError

COPIED = ("match_length", "count", "agreeing", "preferred", "first")
"""Features of a token of a :class:`draftwood.protocols.Continuation`: its three numbers, the match
length growing along the tokens; whether it is of the first continuation offered (1, else 0); and
whether it is the continuation's first token (1, else 0)."""

RANKED = ("rank", "score")
"""Features of a token of :class:`draftwood.protocols.Candidates`: its rank, 0 for the first, and
its score, the exponential of ``logq``."""

_MOST = 1024
"""Most values that a kind of candidates may have."""


@dataclass(frozen=True)
class Feature:
    """A feature of a candidate, in bins.

    Attributes:
        name: one of :data:`COPIED` or :data:`RANKED`.
        edges: lowest value of each bin but the first, ascending.
    """

    name: str
    edges: tuple[float, ...] = (1,)


@dataclass(frozen=True)
class Evidence:
    """What a source says of its candidates. Each combination of bins is a value.

    Attributes:
        copied: of the tokens of its continuations; empty: it copies nothing.
        ranked: of the tokens that it ranks; empty: it ranks nothing.

    Raises:
        DraftwoodError: there is no such feature, its edges do not ascend, it is named twice, or
            there are more than 1,024 combinations.
    """

    copied: tuple[Feature, ...] = ()
    ranked: tuple[Feature, ...] = ()

    def __post_init__(self) -> None:
        for kind, features, known in (
            ("copied", self.copied, COPIED),
            ("ranked", self.ranked, RANKED),
        ):
            names = [feature.name for feature in features]
            wrong = [name for name in names if name not in known]
            if wrong or len(set(names)) < len(names):
                raise DraftwoodError(
                    f"evidence of {kind} tokens has the features {', '.join(names)}: name each at "
                    f"most once, of {', '.join(known)}"
                )
            for name, edges in ((each.name, each.edges) for each in features):
                if not edges or not all(low < high for low, high in pairwise(edges)):
                    raise DraftwoodError(
                        f"the feature {name} has the edges {edges}: give one or more, ascending"
                    )
            if values(features) > _MOST:
                raise DraftwoodError(
                    f"evidence of {kind} tokens has {values(features)} combinations of bins: at "
                    f"most {_MOST} can be learnt"
                )

    def __bool__(self) -> bool:
        """Whether the source says anything."""
        return bool(self.copied or self.ranked)


def values(features: tuple[Feature, ...]) -> int:
    """The number of combinations of bins."""
    return math.prod(len(feature.edges) + 1 for feature in features)
