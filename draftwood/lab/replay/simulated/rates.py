"""How good a made-up drafter is: acceptance by rank, and how copied chains end. Plain numbers.

Neural confidence is made up so that it is calibrated: where a drafter says q for a rank, the
target's token has that rank with probability q; on average over texts q is the rate asked for.
"""

from dataclasses import dataclass

from draftwood.errors import DraftwoodError


@dataclass(frozen=True)
class Rates:
    """Acceptance by rank.

    Attributes:
        ranks: probability that the target's token is at each rank, falling.
        spread: how much q varies from text to text: 0 not at all, 1 as much as it can while ranks
            stay in order.

    Raises:
        DraftwoodError: rates do not fall, are no probabilities, or add up to more than 1.
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

    def at(self, chance: float) -> list[float]:
        """q by rank for a text that drew ``chance``, uniform in [0, 1).

        The first rank's q lies in [low, 1], where low is the least it can be with the other ranks
        scaled to what it leaves; it is low + (1 - low) * chance ** s, whose mean is the rate for
        s = (1 - rate) / (rate - low), drawn towards that mean if the spread is below 1.
        """
        first = self.ranks[0]
        second = self.ranks[1] if len(self.ranks) > 1 else 0.0
        low = second / (1.0 - first + second) if second else 0.0
        if first >= 1.0 or first <= low or not self.spread:
            return list(self.ranks)
        drawn = low + (1.0 - low) * chance ** ((1.0 - first) / (first - low))
        q = first + self.spread * (drawn - first)
        return [q, *(rate * (1.0 - q) / (1.0 - first) for rate in self.ranks[1:])]


@dataclass(frozen=True)
class Copies:
    """Copied chains.

    Attributes:
        match: share of steps in which there is one.
        run: mean number of its tokens that are right, if it were endless.
        length: of a chain, in tokens.
        match_length: of the match it claims, in tokens.

    Raises:
        DraftwoodError: a share that is none, a negative run or no length.
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
        """Probability that a token is right if those before it are."""
        return self.run / (1.0 + self.run)
