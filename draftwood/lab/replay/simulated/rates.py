"""Acceptance rates of a simulated drafter: by rank, and along copied chains.

Confidence is calibrated: where a drafter gives a rank the probability q, the target's token has
this rank with probability q. The mean of q over texts is the given rate.
"""

from dataclasses import dataclass

from draftwood.errors import DraftwoodError
from draftwood.protocols import Part, setting


@dataclass(frozen=True)
class RankRates(Part):
    """Acceptance rates by rank.

    A ``spread`` of 1 is the most that keeps ranks in order.

    Attributes:
        ranks: probability that the target's token has each rank, descending.

    Raises:
        DraftwoodError: rates increase, are no probabilities, or add up to more than 1.
    """

    ranks: tuple[float, ...] = setting((0.6, 0.14, 0.07, 0.04, 0.02), "")
    spread: float = setting(
        0.5,
        "Variation of the drafters' confidence, 0 to 1; confidence stays calibrated.",
        least=0,
        most=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        falling = all(a >= b for a, b in zip(self.ranks, self.ranks[1:], strict=False))
        if not self.ranks or not falling or self.ranks[-1] <= 0.0 or sum(self.ranks) > 1.0 + 1e-9:
            raise DraftwoodError(
                f"acceptance by rank is {self.ranks}: give probabilities above 0 that fall from "
                "rank to rank and add up to at most 1"
            )

    def at(self, u: float) -> list[float]:
        """q by rank for a text, from its number ``u``, uniform in [0, 1).

        The first rank's q lies in [low, 1], where low is the least it can be with the other ranks
        scaled to the remainder. It is low + (1 - low) * u ** s, whose mean is the rate for
        s = (1 - rate) / (rate - low); a spread below 1 moves it towards the mean.
        """
        first = self.ranks[0]
        second = self.ranks[1] if len(self.ranks) > 1 else 0.0
        low = second / (1.0 - first + second) if second else 0.0
        if first >= 1.0 or first <= low or not self.spread:
            return list(self.ranks)
        drawn = low + (1.0 - low) * u ** ((1.0 - first) / (first - low))
        q = first + self.spread * (drawn - first)
        return [q, *(rate * (1.0 - q) / (1.0 - first) for rate in self.ranks[1:])]


@dataclass(frozen=True)
class CopyRates(Part):
    """Rates of copied chains.

    Attributes:
        match: share of steps with a copied chain.
        run: mean number of correct tokens of a chain without end.
    """

    match: float = setting(0.3, "", least=0, most=1)
    run: float = setting(4.0, "", least=0)
    copied: int = setting(20, "Tokens per copied chain.", least=1)
    match_length: int = setting(8, "Tokens per match.", least=1)

    @property
    def rate(self) -> float:
        """Probability that a token is correct if those before it are."""
        return self.run / (1.0 + self.run)
