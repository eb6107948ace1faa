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

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import downloaded
from draftwood.drafters._rollout.coupling_kernel import couple_with_kernel, kernel_for
from draftwood.drafters._rollout.draws import distribution
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.protocols import Candidates, Expand
from draftwood.sampling.device_draws import exponentials_at
from draftwood.sampling.noise import RequestNoise


def couple(
    asked: Sequence[tuple[Expand, torch.Tensor]], vocabulary: VocabularyMap
) -> list[Candidates]:
    """The ``k`` tokens with the largest keys after each node, largest first.

    Args:
        asked: queries with noise, each with the model's raw logits after its nodes, float
            ``[m, Vd]``; these are overwritten.
        vocabulary: the model's.

    Returns:
        Candidates of positive probability for each query; ``logq`` is the log of a token's share in
        the sum of all keys.
    """
    if not asked:
        return []
    if all(kernel_for(query, logits) for query, logits in asked):
        return [
            _candidates(query, *couple_with_kernel(query, logits, vocabulary), vocabulary)
            for query, logits in asked
        ]
    depths = [sorted({query.tree.depths[node] for node in query.nodes}) for query, _ in asked]
    variates = _variates([query for query, _ in asked], depths, vocabulary, asked[0][1].device)
    largest = [
        each
        for (query, logits), different, own in zip(asked, depths, variates, strict=True)
        for each in _largest(query, logits, different, own, vocabulary)
    ]
    found = downloaded(largest)
    return [
        _candidates(query, found[2 * i], found[2 * i + 1], vocabulary)
        for i, (query, _) in enumerate(asked)
    ]


def _variates(
    queries: Sequence[Expand],
    depths: Sequence[Sequence[int]],
    vocabulary: VocabularyMap,
    device: torch.device,
) -> Iterator[torch.Tensor]:
    """The variates at some depths of each query, float64 ``[d, V]``.

    On another device than the CPU those of several queries are made at once: that takes as many
    operations as those of one.
    """
    size = len(vocabulary.of_token)
    noises = [query.noise for query in queries if isinstance(query.noise, RequestNoise)]
    if device.type == "cpu" or len(noises) < len(queries):
        for query, own in zip(queries, depths, strict=True):
            assert query.noise is not None
            yield query.noise.exponentials(own, size, device)
        return
    addresses = [
        [noise.address(depth) for depth in own] for noise, own in zip(noises, depths, strict=True)
    ]
    yield from exponentials_at(addresses, size, device)


def _largest(
    query: Expand,
    logits: torch.Tensor,
    different: Sequence[int],
    variates: torch.Tensor,
    vocabulary: VocabularyMap,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs with the largest keys, int64 ``[m, k]``, and their shares, float32.

    Args:
        query: with its nodes.
        logits: of the model after these, which are overwritten.
        different: their depths.
        variates: at these.
        vocabulary: the model's.
    """
    q = distribution(query, logits, vocabulary)
    depths = [query.tree.depths[node] for node in query.nodes]
    rows = vocabulary.of_outputs(variates)
    if len(different) > 1:
        rows = torch.stack([rows[different.index(depth)] for depth in depths])
    # In float64, like the target's keys: a tiny q must not vanish.
    keys = q / rows
    largest = keys.topk(min(query.k, keys.shape[1]), dim=1)
    shares = largest.values / keys.sum(dim=1, keepdim=True)
    return largest.indices, shares.float()


def _candidates(
    query: Expand, picks: NDArray[np.int64], shares: NDArray[np.float32], vocabulary: VocabularyMap
) -> Candidates:
    real = shares > 0  # false where q is 0 or NaN
    answer, columns = Candidates.none(query), slice(picks.shape[1])
    answer.tokens[:, columns] = np.where(real, vocabulary.to_target[picks], -1)
    np.log(shares, out=answer.logq[:, columns], where=real)
    return answer
