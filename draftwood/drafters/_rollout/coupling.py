"""Drafts that follow the target's own random numbers.

The target draws a token as the winner of a race (:mod:`draftwood.sampling.noise`): token i runs at
the speed p_i / E_i, with exponential clocks E that depend on the request's seed and the token's
position, and on nothing else. A draft model that runs the race of its own q with the same clocks
names the very token that the target will draw where q = p, and where q is near p most often; those
that come in next in its race are the next likeliest. The target's draw does not depend on any of
this, so every token that is generated is the one that plain decoding draws with this seed, whatever
was drafted.

Source: Daliri, Musco and Suresh, *Coupling without Communication and Drafter-Invariant Speculative
Decoding* (2024), for the one token that wins; P[it is the target's] is at least (1 - d) / (1 + d)
with d the total variation distance of p and q. That the next ones of the race are drafted too, and
that how far ahead they run tells how likely they are, is not in the paper.

Knows nothing of models, trees and the accept rule.
"""

from collections.abc import Sequence

import numpy as np
import torch

from draftwood.drafters._rollout.draws import distribution
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.protocols import Candidates, Expand


def couple(
    query: Expand, depths: Sequence[int], logits: torch.Tensor, outputs: VocabularyMap
) -> Candidates:
    """The first ``k`` tokens of the race after each node, the fastest first.

    Args:
        query: what is asked; it has noise.
        depths: ``m``, of its nodes.
        logits: float ``[m, Vd]``, the model's raw logits after each node, to be overwritten.
        outputs: of the model.

    Returns:
        Candidates whose ``logq`` is the log of a token's share in the speeds of all. Of tokens that
        cannot be drawn there are none.
    """
    assert query.noise is not None
    q = distribution(query, logits, outputs)
    size = len(outputs.of_token)
    exponentials = {
        depth: query.noise.exponentials(depth, size)[outputs.to_target] for depth in set(depths)
    }
    # In float64, as the target's race is: where q is tiny, its quotient by a clock still counts.
    rows = torch.from_numpy(np.stack([exponentials[depth] for depth in depths]))
    keys = q / rows.to(q.device)
    fastest = keys.topk(min(query.k, keys.shape[1]), dim=1)
    shares = fastest.values / keys.sum(dim=1, keepdim=True)
    # HAND-OVER: m * k numbers.
    picks, found = fastest.indices.cpu().numpy(), shares.cpu().numpy()
    real = found > 0  # not so where q is 0 or not a number
    tokens = np.full((len(picks), query.k), -1, dtype=np.int64)
    logq = np.full(tokens.shape, -np.inf, dtype=np.float32)
    kept = slice(picks.shape[1])
    tokens[:, kept] = np.where(real, outputs.to_target[picks], -1)
    np.log(found, out=logq[:, kept], where=real, casting="same_kind")
    return Candidates(tokens, logq)
