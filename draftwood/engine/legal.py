"""The part of a drafter's answer that a request's grammar allows.

An illegal candidate could never be accepted, so it would waste its row of the target's forward, and
what was drafted below it. Dropping drawn children is lossless: the order in which the legal ones
are drawn does not depend on the illegal ones between them, so that they are drawn from q over the
legal tokens, and how many there are depends on what was drawn before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from draftwood.protocols import (
    Branches,
    Candidates,
    Constraint,
    Continuation,
    Continue,
    Expand,
    Query,
)
from draftwood.tree import Draw

_MORE = 4
"""Children that are asked for in place of one, as some are not legal."""


def widened(query: Expand) -> Expand:
    """The query for more children than are wanted, so that enough of them are legal.

    Independent samples are left as they are, as most of more would repeat.
    """
    return query if query.draw is Draw.IID else replace(query, k=_MORE * query.k)


def legal_answer(answer: Any, query: Query, constraint: Constraint) -> Any:
    """The answer of a drafter without illegal candidates."""
    if isinstance(query, Continue):
        return tuple(_cut(answer, constraint))
    if isinstance(query, Branches):
        return tuple(path for path in answer if constraint.legal_length(path) == len(path))
    if isinstance(query, Expand):
        return _kept(answer, query, constraint)
    return answer


def _cut(offers: Sequence[Continuation], constraint: Constraint) -> Iterator[Continuation]:
    """The continuations up to their first illegal tokens; some have none before it."""
    for offer in offers:
        length = constraint.legal_length(offer.tokens)
        if length == len(offer.tokens):
            yield offer
        elif length:
            yield replace(offer, tokens=offer.tokens[:length])


def _kept(answer: Candidates, query: Expand, constraint: Constraint) -> Candidates:
    """The first legal candidates of each row, as many as the query wants, in their order."""
    shape = len(query.nodes), query.k
    tokens, logq = np.full(shape, -1), np.full(shape, -np.inf, dtype=np.float32)
    for row, node in enumerate(query.nodes):
        given = answer.tokens[row]
        path = query.tree.path_tokens(node)
        legal = np.flatnonzero(constraint.allows(path, given.tolist()))[: query.k]
        tokens[row, : len(legal)] = given[legal]
        logq[row, : len(legal)] = answer.logq[row, legal]
    return replace(answer, tokens=tokens, logq=logq)
