"""Margins between two tokens: does rounding alone explain that one was chosen for the other?

Another kernel sums in another order, so logits differ by rounding, and the second token may win.
The margin of a token is the amount by which its logit would have to increase to be chosen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from draftwood.lab.rounding import ROUNDINGS
from draftwood.models import Loaded
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.sampler import Sampler, SamplingParams

_MOST = 30.0
"""Largest exponent of the odds; beyond it, filters keep all tokens or only the likeliest."""


@dataclass(frozen=True)
class Margin:
    """Distance of two tokens, and the bound on rounding; both in logits.

    Attributes:
        gap: margin of the less likely of the two tokens; inf if rounding cannot select it.
        bound: largest change of the gap by rounding.
    """

    gap: float
    bound: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding decides between the two tokens."""
        return self.gap <= self.bound


def margin(
    stock: Loaded,
    tokens: Sequence[int],
    between: Sequence[int],
    sampling: SamplingParams,
    *,
    generated: int = 0,
    legal: torch.Tensor | None = None,
) -> Margin:
    """Margin between tokens, from one plain forward of the untouched model.

    Args:
        stock: the untouched model in the run's dtype.
        tokens: preceding tokens.
        between: the tokens that were chosen.
        sampling: sampling parameters of the request, with its seed.
        generated: how many of the preceding tokens the request generated; presence and frequency
            penalties count these.
        legal: tokens that a grammar allows, bool ``[V]``; None: all.
    """
    ids = torch.tensor([list(tokens)], device=stock.model.device)
    with torch.inference_mode():
        logits = stock.model(input_ids=ids, use_cache=False).logits[:, -1]
    penalty = sampling.repetition_penalty  # it multiplies or divides a logit with its rounding
    bound = ROUNDINGS * torch.finfo(logits.dtype).eps * float(logits.abs().max())
    bound *= max(penalty, 1 / penalty)
    row = logits.float().cpu()
    if legal is not None:
        row = row.masked_fill(~legal, -math.inf)
    prompt = len(tokens) - generated
    if sampling.temperature == 0:
        scores = Sampler(sampling, prompt).scores(ids.cpu(), row)[0]
        gaps = [float(scores.max() - scores[token]) for token in between]
    else:
        draw = _GumbelMax(row, ids.cpu(), sampling, bound, prompt)
        gaps = [draw.margin(token) for token in between]
    return Margin(max(gaps), bound)


class _GumbelMax:
    """A sampled token by the Gumbel-max rule: the largest sum of a score and the token's noise.

    See :meth:`draftwood.sampling.noise.RequestNoise.choose`.
    """

    def __init__(
        self,
        logits: torch.Tensor,
        ids: torch.Tensor,
        sampling: SamplingParams,
        bound: float,
        prompt: int,
    ) -> None:
        self._logits, self._ids, self._bound = logits, ids, bound
        self._sampling, self._prompt = sampling, prompt
        free = replace(sampling, top_k=0, top_p=1.0)
        ones = torch.ones(logits.shape[1], dtype=torch.float64)
        noise = RequestNoise(sampling.seed, ids.shape[1] - 1).gumbel_keys(0, ones).log()
        self._sums = self._scores(logits, free)[0].double() + noise
        self._best = self._certain_best()

    def margin(self, token: int) -> float:
        """Increase of the token's logit that selects it; inf if a filter drops it."""
        if not self._kept(token, self._bound, self._with_mass_moved(1)):
            return math.inf
        return self._sampling.temperature * max(0.0, self._best - float(self._sums[token]))

    def _certain_best(self) -> float:
        """Largest sum of a token that filters keep under any rounding."""
        tight = self._with_mass_moved(-1)
        # Such tokens are among those that the filters keep without rounding.
        kept = self._scores(self._logits, self._sampling)[0].isfinite().nonzero()[:, 0]
        for token in kept[self._sums[kept].argsort(descending=True)].tolist():
            if self._kept(token, -self._bound, tight):
                return float(self._sums[token])
        return -math.inf

    def _with_mass_moved(self, sign: int) -> SamplingParams:
        """Sampling parameters with the largest or smallest nucleus under rounding.

        If every logit changes by a quarter of the bound, the odds of a set of tokens against the
        others change by a factor of at most exp(bound / 2 / temperature).
        """
        p = self._sampling.top_p
        if p == 1:
            return self._sampling
        moved = min(_MOST, self._bound / 2 / self._sampling.temperature)
        odds = p / (1 - p) * math.exp(sign * moved)
        return replace(self._sampling, top_p=odds / (1 + odds))

    def _kept(self, token: int, raised: float, sampling: SamplingParams) -> bool:
        """Whether the filters keep a token whose logit is raised."""
        logits = self._logits.clone()
        logits[0, token] += raised
        return math.isfinite(float(self._scores(logits, sampling)[0, token]))

    def _scores(self, logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
        return Sampler(sampling, self._prompt).scores(self._ids, logits)
