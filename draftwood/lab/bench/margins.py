"""How far tokens were from being chosen, and how far rounding can move that.

Another kernel adds the same numbers in another order, so logits differ by rounding, and a token may
win there that came second here. Two tokens tell a defect from that: the reference's and the one
found. Each is as far *behind* as its logit would have to be raised to be chosen. Knows nothing of
runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from draftwood.models import Loaded
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.sampler import Sampler, SamplingParams

ROUNDINGS = 8
"""Units in the last place of the largest logit within which rounding decides.

Two logits are compared, in two computations that may both differ from the exact one, and each of
these four values is taken to be off by up to two units: half of one for its own rounding to the
dtype, the rest for the hidden states it was made of. In float32 with a largest logit of 10 this is
1e-5, in bfloat16 0.6.
"""


_MOST = 30.0
"""Largest exponent of the odds: beyond it everything is kept, or the likeliest token alone."""


@dataclass(frozen=True)
class Margin:
    """What decides whether a difference is one of rounding; all in logits.

    Attributes:
        gap: how far the worse of the two tokens was behind; inf if no rounding could choose it.
        bound: how far rounding can move that.
    """

    gap: float
    bound: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding decides between the two tokens."""
        return self.gap <= self.bound


def margin(
    stock: Loaded, tokens: Sequence[int], between: Sequence[int], sampling: SamplingParams
) -> Margin:
    """The margin between some tokens, by one plain forward of the untouched model.

    Args:
        stock: the untouched model, in the run's dtype, which decides the bound.
        tokens: what came before.
        between: the tokens that were chosen.
        sampling: as the request was sampled, its seed included.
    """
    ids = torch.tensor([list(tokens)], device=stock.model.device)
    with torch.inference_mode():
        logits = stock.model(input_ids=ids, use_cache=False).logits[:, -1]
    bound = ROUNDINGS * torch.finfo(logits.dtype).eps * float(logits.abs().max())
    row = logits.float().cpu()
    if sampling.temperature == 0:
        gaps = [float(row.max() - row[0, token]) for token in between]
    else:
        race = _Race(row, ids.cpu(), sampling, bound)
        gaps = [race.behind(token) for token in between]
    return Margin(max(gaps), bound)


class _Race:
    """A draw: of the tokens that filters keep, the one with the largest logit plus noise.

    A draw is the winner of a race (:meth:`draftwood.sampling.noise.RequestNoise.choose`), whose
    fastest runner is the largest sum of a logit over the temperature and a number that is the
    token's own.
    """

    def __init__(
        self, logits: torch.Tensor, ids: torch.Tensor, sampling: SamplingParams, bound: float
    ) -> None:
        self._logits, self._ids, self._bound = logits, ids, bound
        self._sampling = sampling
        free = replace(sampling, top_k=0, top_p=1.0)
        ones = torch.ones(logits.shape[1], dtype=torch.float64)
        noise = RequestNoise(sampling.seed, ids.shape[1] - 1).gumbel_keys(0, ones).log()
        self._sums = self._scores(logits, free)[0].double() + noise
        self._best = self._surely_best()

    def behind(self, token: int) -> float:
        """How far the token's logit is too low for it to win; inf if a filter would not keep it."""
        if not self._kept(token, self._bound, self._with_mass_moved(1)):
            return math.inf
        return self._sampling.temperature * max(0.0, self._best - float(self._sums[token]))

    def _surely_best(self) -> float:
        """The largest sum of a token that filters keep even if rounding speaks against it."""
        tight = self._with_mass_moved(-1)
        # Only tokens that the filters keep as they are can do that: few, where there are filters.
        kept = self._scores(self._logits, self._sampling)[0].isfinite().nonzero()[:, 0]
        for token in kept[self._sums[kept].argsort(descending=True)].tolist():
            if self._kept(token, -self._bound, tight):
                return float(self._sums[token])
        return -math.inf

    def _with_mass_moved(self, sign: int) -> SamplingParams:
        """The settings with a nucleus as much larger or smaller as rounding can make it.

        If every logit moves by a quarter of the bound, the odds of a set of tokens against the
        others change by a factor of at most exp(half of the bound / temperature).
        """
        p = self._sampling.top_p
        if p == 1:
            return self._sampling
        moved = min(_MOST, self._bound / 2 / self._sampling.temperature)
        odds = p / (1 - p) * math.exp(sign * moved)
        return replace(self._sampling, top_p=odds / (1 + odds))

    def _kept(self, token: int, raised: float, sampling: SamplingParams) -> bool:
        """Whether the filters keep a token whose logit is so much higher."""
        logits = self._logits.clone()
        logits[0, token] += raised
        return math.isfinite(float(self._scores(logits, sampling)[0, token]))

    def _scores(self, logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
        return Sampler(sampling, self._ids.shape[1]).scores(self._ids, logits)
