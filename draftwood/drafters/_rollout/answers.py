"""The answers to queries, from a model's outputs at their nodes."""

import math
from collections.abc import Sequence

import torch

from draftwood.drafters._rollout.coupling import couple
from draftwood.drafters._rollout.draws import Draws
from draftwood.drafters._rollout.topk import Place, rank
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.errors import DraftwoodError
from draftwood.protocols import Candidates, Expand
from draftwood.tree import Draw


def check(query: Expand) -> None:
    """Check that a query can be answered.

    Raises:
        DraftwoodError: its temperature is not above 0, or it asks for samples without noise.
    """
    if not 0 < query.temperature < math.inf:
        raise DraftwoodError(
            f"a draft's temperature is {query.temperature}; give one above 0, and for greedy "
            "decoding ask for one-hot children"
        )
    if query.draw is not Draw.ONE_HOT and query.noise is None:
        raise DraftwoodError(
            f"a query for {query.draw.name} children has no noise; give it that of the growth"
        )


def most_ranked(queries: Sequence[Expand]) -> int:
    """Tokens that rows need in their top-k for the one-hot queries; 0 without any."""
    ranked = [query for query in queries if query.draw is Draw.ONE_HOT]
    return max((q.k + max(map(len, q.exclude), default=0) for q in ranked), default=0)


def answers(
    asked: Sequence[tuple[Draws, Expand, Sequence[Place]]],
    vocabulary: VocabularyMap,
    node_by_node: bool = False,
) -> list[Candidates]:
    """The answers; those to queries for coupled children wait for the device together.

    Args:
        asked: for each query the draws of its request, and the output at its nodes.
        vocabulary: the model's.
        node_by_node: see :func:`draftwood.drafters._rollout.topk.rank`.
    """
    coupled = [(query, _logits(places)) for _, query, places in asked if query.draw is Draw.COUPLED]
    drawn = iter(couple(coupled, vocabulary))
    found = []
    for draws, query, places in asked:
        if query.draw is Draw.COUPLED:
            found.append(next(drawn))
        elif query.draw is Draw.ONE_HOT:
            found.append(rank(query, places, vocabulary, node_by_node))
        else:
            found.append(draws.draw(query, _logits(places)))
    return found


def _logits(places: Sequence[Place]) -> torch.Tensor:
    """A copy ``[m, Vd]`` of the places' logits."""
    return torch.stack([rows.logits[row] for rows, row in places])
