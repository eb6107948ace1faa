"""Where a method's tokens leave the reference's, and how nearly tied the target was there.

A lossless method may still pick the other of two tokens whose logits differ by rounding, since a
tree is scored by other kernels than a single token. The gap between the two largest logits, taken
by one plain forward of the untouched model in the run's dtype, tells such a tie from a defect.
Where tokens are sampled, the gap is between the two best after the noise of the draw was added.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import torch

from draftwood.bench.rows import Run
from draftwood.models import Loaded
from draftwood.noise import RequestNoise
from draftwood.sampling import Sampler, SamplingParams

TIE = 1e-5
"""Logits closer than this are a near tie."""


@dataclass(frozen=True)
class Divergence:
    """The first difference between a run and the reference's.

    Attributes:
        id: the prompt's.
        run_seed: of the run.
        repeat: of the run.
        turn: whose answer differs, from 0.
        position: of the first differing token in that answer, from 0.
        expected: the reference's token there, None if its answer had ended.
        found: the method's, None likewise.
        gap: how far the target's best token was ahead there, in logits; None if not computed.
        near_tie: whether the gap is below 1e-5.
    """

    id: str
    run_seed: int
    repeat: int
    turn: int
    position: int
    expected: int | None
    found: int | None
    gap: float | None = None
    near_tie: bool = False


def divergence(run: Run, reference: Run) -> Divergence | None:
    """The first difference in tokens, or None."""
    for number, (wanted, got) in enumerate(zip(reference.tokens, run.tokens, strict=True)):
        for position, (a, b) in enumerate(zip_longest(wanted, got)):
            if a != b:
                return Divergence(run.prompt.id, run.run_seed, run.repeat, number, position, a, b)
    return None


def explain(found: Divergence, reference: Run, gap: Callable[[Sequence[int]], float]) -> Divergence:
    """The divergence with its gap; ``gap`` answers for the token ids up to it."""
    turn = reference.turns[found.turn]
    tokens = (*turn.context.ids, *turn.completion.tokens[: found.position])
    value = gap(tokens)
    return replace(found, gap=value, near_tie=value < TIE)


def top_two_gap(stock: Loaded, tokens: Sequence[int], sampling: SamplingParams) -> float:
    """How far the best token after ``tokens`` is ahead of the second, in logits.

    At temperature 0 the largest logit minus the second largest, in the model's dtype. Else a draw
    is the winner of a race (:meth:`draftwood.noise.RequestNoise.choose`), which is the largest sum
    of a logit over the temperature and a number of its own: the gap between the two largest sums,
    times the temperature. ``sampling`` has the seed of the request.
    """
    ids = torch.tensor([list(tokens)], device=stock.model.device)
    with torch.inference_mode():
        logits = stock.model(input_ids=ids, use_cache=False).logits[:, -1]
        if sampling.temperature == 0:
            first, second = logits[0].float().topk(2).values.tolist()
            return float(first - second)
        p = torch.softmax(Sampler(sampling, len(tokens)).scores(ids, logits)[0], dim=-1)
        speeds = RequestNoise(sampling.seed, len(tokens) - 1).speeds(0, p)
    first, second = speeds.topk(2).values.tolist()
    return sampling.temperature * math.log(first / second) if second > 0 else math.inf
