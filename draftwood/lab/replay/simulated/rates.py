"""Acceptance rates of a simulated drafter: by rank, and along copied chains.

Confidence is calibrated: where a drafter gives a rank the probability q, the target's token has
this rank with probability q. The mean of q over texts is the given rate.
"""

from dataclasses import dataclass

from draftwood.errors import DraftwoodError


@dataclass(frozen=True)
class RankRates:
    """Acceptance rates by rank.

    Attributes:
        ranks: probability that the target's token has each rank, descending.
        spread: variation of q over texts, from 0 (none) to 1 (the most that keeps ranks in order).

    Raises:
        DraftwoodError: rates increase, are no probabilities, or add up to more than 1.
    """

    ranks: tuple[float, ...]
    spread: float = 0.5

    def __post_init__(self) -> None:
        falling = all(a >= b for a, b in zip(self.ranks, self.ranks[1:], strict=False))
        if not self.ranks or not falling or self.ranks[-1] <= 0.0 or sum(self.ranks) > 1.0 + 1e-9:
            raise DraftwoodError(
                f"acceptance by rank is {self.ranks}: give probabilities above 0 that fall from "
                "rank to rank and add up to at most 1"
            )
        if not 0.0 <= self.spread <= 1.0:
            raise DraftwoodError(f"spread is {self.spread}; give a number in [0, 1]")

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
class CopyRates:
    """Rates of copied chains.

    Attributes:
        match: share of steps with a copied chain.
        run: mean number of correct tokens of a chain without end.
        length: length of a chain, in tokens.
        match_length: length of its match in the context, in tokens.

    Raises:
        DraftwoodError: the share is not in [0, 1], the run is negative or a length is below 1.
    """

    match: float
    run: float
    length: int = 20
    match_length: int = 8

    def __post_init__(self) -> None:
        if not 0.0 <= self.match <= 1.0 or self.run < 0.0:
            raise DraftwoodError(
                f"copies match in {self.match} of all steps for {self.run} tokens: give a share "
                "in [0, 1] and 0 tokens or more"
            )
        if self.length < 1 or self.match_length < 1:
            raise DraftwoodError(
                f"copies have {self.length} tokens after {self.match_length}: give at least 1"
            )

    @property
    def rate(self) -> float:
        """Probability that a token is correct if those before it are."""
        return self.run / (1.0 + self.run)
