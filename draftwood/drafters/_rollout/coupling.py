"""Drafts sampled with the target's own random numbers.

The target draws the token with the largest key p_i / E_i (:mod:`draftwood.sampling.noise`). The
Exp(1) variates E depend on the request's seed and the token's position only. The drafter takes the
tokens with the largest keys q_i / E_i, with the same variates. If q = p, the first one is the
target's token; if q is near p, it usually is, and the next ones are the next likeliest. The
target's draw does not depend on the draft. So the generated tokens are those of plain decoding with
the same seed.

Source: Daliri, Musco and Suresh, *Coupling without Communication and Drafter-Invariant Speculative
Decoding* (2024), for the first token: it is the target's with probability at least (1 - d) / (1 +
d), with d the total variation distance of p and q. Drafting further tokens, and scoring them by
their share in the sum of all keys, is not in the paper.
"""

from collections.abc import Sequence

import numpy as np
import torch

from draftwood.drafters._rollout.draws import distribution
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.protocols import Candidates, Expand


def couple(
    query: Expand, depths: Sequence[int], logits: torch.Tensor, vocabulary: VocabularyMap
) -> Candidates:
    """The ``k`` tokens with the largest keys after each node, largest first.

    Args:
        query: with noise.
        depths: ``m``, of its nodes.
        logits: float ``[m, Vd]``, the model's raw logits after each node; overwritten.
        vocabulary: the model's.

    Returns:
        Candidates of positive probability; ``logq`` is the log of a token's share in the sum of
        all keys.
    """
    assert query.noise is not None
    q = distribution(query, logits, vocabulary)
    size = len(vocabulary.of_token)
    exponentials = {
        depth: query.noise.exponentials(depth, size)[vocabulary.to_target] for depth in set(depths)
    }
    # In float64, like the target's keys: a tiny q must not vanish.
    rows = torch.from_numpy(np.stack([exponentials[depth] for depth in depths]))
    keys = q / rows.to(q.device)
    largest = keys.topk(min(query.k, keys.shape[1]), dim=1)
    shares = largest.values / keys.sum(dim=1, keepdim=True)
    # HAND-OVER: m * k numbers.
    picks, found = largest.indices.cpu().numpy(), shares.cpu().numpy()
    real = found > 0  # false where q is 0 or NaN
    answer, columns = Candidates.none(query), slice(picks.shape[1])
    answer.tokens[:, columns] = np.where(real, vocabulary.to_target[picks], -1)
    np.log(found, out=answer.logq[:, columns], where=real, casting="same_kind")
    return answer
