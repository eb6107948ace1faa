"""The frozen snapshot that a tuner hands to the policy for one step of one request.

Values are in expected tokens. Pure; nothing here is learnt.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from draftwood.policies.auto.features import COPIED, NOT_LISTED, Codes, Source


class Predictor(Protocol):
    """Predicts acceptance; never changes, and is hashable."""

    def __hash__(self) -> int:
        """By identity, unless a class has values."""
        return id(self)

    def probability(self, codes: Codes) -> float:
        """Probability that the target accepts a candidate with these codes, given its parent."""
        ...


@dataclass(frozen=True)
class DraftForecast:
    """A tuner's forecast of one neural drafter.

    Attributes:
        gain: what its forwards add, relative to the headroom of the nodes that it is asked about
            (:meth:`draftwood.policies.auto.pool.Pool.headroom`).
        catch_up: cost of its first forward of a step on top of its level, in tokens: it reads what
            was committed since it last drafted. Spread over as many steps as that took.
        at_once: one forward serves all levels of the step.
        deepest: depth of the deepest nodes that it ever proposes; None: it has no bound.
    """

    gain: float = 0.7
    catch_up: float = 0.0
    at_once: bool = False
    deepest: int | None = None


def _any_number(_nodes: int) -> float:
    """What a request commits on average, where it is not known."""
    return math.inf


@dataclass(frozen=True, eq=False)
class Forecast:
    """A tuner's forecast for one step of one request.

    Attributes:
        acceptance: predicts the acceptance of candidates.
        token_weight: of a token of this request, relative to the batch mean.
        floor: path probability below which a candidate is dropped; above 1 nothing is drafted.
        price: recent path probability from which on a candidate paid.
        drafts: of the neural drafters, by source.
        sources: of the candidates, in the order of their codes; empty: not known.
        tokens: that the request commits on average, plus what the step's nodes cost more than
            usual, in its tokens, by its own nodes; one at least.
    """

    acceptance: Predictor
    token_weight: float = 1.0
    floor: float = 0.02
    price: float = 0.1
    drafts: Mapping[str, DraftForecast] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    tokens: Callable[[int], float] = field(default=_any_number, repr=False)

    def of(self, source: str) -> DraftForecast:
        """The forecast of a neural drafter; the default where none was made."""
        return self.drafts.get(source, _UNKNOWN)


_UNKNOWN = DraftForecast()


class _DefaultPredictor:
    """Predicts without counts: a copied token is likelier than any other."""

    def probability(self, codes: Codes) -> float:
        """See :class:`Predictor`."""
        return 0.6 if codes[COPIED] > NOT_LISTED else 0.3


DEFAULT_FORECAST = Forecast(_DefaultPredictor())
"""The forecast of a step without a tuner."""
