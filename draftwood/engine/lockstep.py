"""Runs the policies of a batch in lockstep: one tree per sequence, one drafter call per round.

A policy is written for one sequence and yields queries. The queries of all sequences to one source
are answered in one call. A source is asked only while no sequence waits for a source that the
policy names before it. So all sequences finish their rounds of a quick source before one forward of
a draft model serves them all. Bids for draft levels wait until no sequence waits for a source. They
are grouped by source, one source is decided on, and its bids are answered together; who has not bid
for it goes on waiting. Other bids wait until every sequence has bid or ended; one price answers all
of them. Candidates that a request's grammar does not allow are taken out of the answers, so that
none of them takes a place in a tree. Knows nothing of targets and verifiers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from draftwood.engine.legal import legal_answer, widened
from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    FREE,
    Answer,
    Bid,
    Branches,
    Constraint,
    Continue,
    Descend,
    Describe,
    Drafter,
    Expand,
    Growth,
    Level,
    LevelBid,
    LevelBids,
    Policy,
    Price,
    Query,
    first_source,
)
from draftwood.tree import TokenTree, TreeBuilder

Levels: TypeAlias = Callable[[Mapping[str, Sequence[LevelBid]]], tuple[str, Sequence[int]]]
"""Decides on a source, and answers the bids for a level of it
(:meth:`draftwood.protocols.Tuner.levels`)."""


_Q = TypeVar("_Q", Describe, Descend)

_TO_A_SOURCE = (Continue, Branches, Expand, Describe, Descend)


@dataclass(frozen=True, eq=False)
class Drafted:
    """A finished tree, and the bid that the policy made for it, if it made one.

    If the policy raised an exception, that is the ``error``, and the tree is its root alone.
    """

    tree: TokenTree
    bid: Bid | None
    error: Exception | None = None


def free(bids: Sequence[Bid]) -> Price:  # noqa: ARG001
    """Answer bids with the price at which every candidate is drafted."""
    return FREE


def refuse_silent(policy: Policy, drafters: Mapping[str, Drafter]) -> None:
    """Refuse drafters that never answer what the policy asks them for.

    Args:
        policy: asks them.
        drafters: by the source names that its queries use.

    Raises:
        DraftwoodError: a source is bound to such a drafter.
    """
    for source, asked in policy.asks.items():
        kind = type(drafters[source])
        copies = kind.continuations is not Drafter.continuations
        if asked == "successors":
            silent, lacks = kind.expand is Drafter.expand, "ranks no successors of a token"
        elif asked == "chains":
            silent, lacks = not copies, "copies no text"
        else:
            silent = not copies and kind.branches is Drafter.branches
            lacks = "copies no trees"
        if silent:
            raise DraftwoodError(
                f"the drafter that source {source!r} is bound to {lacks}, for which it is asked "
                "here: bind another one ('draftwood drafters' lists them)"
            )


def draft(
    policy: Policy,
    drafters: Mapping[str, Drafter],
    slots: Sequence[int],
    growths: Sequence[Growth],
    states: Sequence[Any],
    price: Callable[[Sequence[Bid]], Price] = free,
    levels: Levels = first_source,
    constraints: Sequence[Constraint | None] = (),
) -> list[Drafted]:
    """One tree per slot.

    Args:
        policy: grows each tree.
        drafters: by the source names that the policy's queries use.
        slots: where the drafters keep each sequence.
        growths: what the policy may know of each sequence.
        states: the policy's state of each sequence.
        price: answers the bids of all sequences.
        levels: decides on a source, and answers the bids for a level of it.
        constraints: what the grammar of each sequence allows; empty: none has one.
    """
    trees: list[TokenTree | None] = [None] * len(slots)
    errors: dict[int, Exception] = {}
    growers = [policy.grow(growth, state) for growth, state in zip(growths, states, strict=True)]
    answers: dict[int, Answer | Exception | None] = dict.fromkeys(range(len(slots)))
    limits = {i: each for i, each in enumerate(constraints) if each is not None}
    queries: dict[int, Query] = {}
    bids: dict[int, Bid] = {}
    sources = policy.sources
    if limits:
        sources = (*policy.grammar_sources, *sources)
    while answers:
        for i, answer in answers.items():
            try:
                if isinstance(answer, Exception):
                    queries[i] = growers[i].throw(answer)
                else:
                    queries[i] = growers[i].send(answer)
            except StopIteration as finished:
                queries.pop(i, None)
                trees[i] = finished.value
            except Exception as error:  # noqa: BLE001 - the others go on
                queries.pop(i, None)
                trees[i] = TreeBuilder(growths[i].anchor).build()
                errors[i] = error
        answers = {}
        for source in sources:
            answers = answers or _answer(drafters[source], source, slots, queries, limits)
        asking = {i: query for i, query in queries.items() if isinstance(query, LevelBids)}
        if not answers and asking:
            answers = _decide(asking, sources, levels)
        if not answers and queries:
            # No sequence waits for anything else: all others have bid.
            offered = {i: query for i, query in queries.items() if isinstance(query, Bid)}
            answers = dict.fromkeys(offered, price(list(offered.values())))
            bids |= offered
    return [
        Drafted(tree, None if i in errors else bids.get(i), errors.get(i))
        for i, tree in enumerate(trees)
        if tree is not None
    ]


def _decide(
    asking: Mapping[int, LevelBids],
    sources: Sequence[str],
    levels: Levels,
) -> dict[int, Answer | Exception | None]:
    """Answers to those who bid for a level of the source that is decided on."""
    own = {
        source: {
            i: bid for i, query in asking.items() for bid in query.bids if bid.source == source
        }
        for source in sources
    }
    source, widths = levels({source: [*bids.values()] for source, bids in own.items() if bids})
    return {i: Level(source, width) for i, width in zip(own[source], widths, strict=True)}


def _answer(
    drafter: Drafter,
    source: str,
    slots: Sequence[int],
    queries: Mapping[int, Query],
    limits: Mapping[int, Constraint],
) -> dict[int, Answer | Exception | None]:
    """Answers to all that wait for a source."""
    own = {i: q for i, q in queries.items() if isinstance(q, _TO_A_SOURCE) and q.source == source}
    answers: dict[int, Answer | Exception | None] = {}
    if not own:
        return answers
    copies = [i for i, q in own.items() if isinstance(q, Continue)]
    trees = {i: q for i, q in own.items() if isinstance(q, Branches)}
    asked = {i: q for i, q in own.items() if isinstance(q, Expand)}
    known = {i: q for i, q in own.items() if isinstance(q, Describe)}
    levels = {i: q for i, q in own.items() if isinstance(q, Descend)}
    if copies:
        answers |= _each(lambda some: drafter.continuations([slots[i] for i in some]), copies)
    if trees:

        def branches(some: Sequence[int]) -> Sequence[Answer]:
            return drafter.branches([slots[i] for i in some], [trees[i] for i in some])

        answers |= _each(branches, list(trees))
    if asked:
        wide = [widened(query) if i in limits else query for i, query in asked.items()]
        offered = drafter.expand([slots[i] for i in asked], wide)
        answers.update(zip(asked, offered, strict=True))
    if known:
        answers |= _at_once(drafter.describe, slots, known, limits)
    if levels:
        answers |= _at_once(drafter.descend, slots, levels, limits)
    for i in limits.keys() & answers.keys():
        if isinstance(answers[i], Exception):
            continue
        try:
            answers[i] = legal_answer(answers[i], queries[i], limits[i])
        except Exception as error:  # noqa: BLE001 - the others go on
            answers[i] = error
    return answers


def _at_once(
    ask: Callable[[Sequence[int], Sequence[_Q]], Sequence[Answer | None]],
    slots: Sequence[int],
    queries: Mapping[int, _Q],
    limits: Mapping[int, Constraint],
) -> dict[int, Answer | Exception | None]:
    """Answers about several levels; None with a grammar.

    What a grammar does not allow would have to be left out level by level.
    """
    numbers = [i for i in queries if i not in limits]
    found = ask([slots[i] for i in numbers], [queries[i] for i in numbers])
    answers: dict[int, Answer | Exception | None] = dict.fromkeys(queries)
    answers.update(zip(numbers, found, strict=True))
    return answers


def _each(
    ask: Callable[[Sequence[int]], Sequence[Answer]], some: Sequence[int]
) -> dict[int, Answer | Exception | None]:
    """Answers to some sequences together; if that fails, to each by itself, or its exception.

    Nothing is computed with a model for them, and asking again changes nothing.
    """
    try:
        return dict(zip(some, ask(some), strict=True))
    except Exception as error:  # noqa: BLE001 - the others go on
        if len(some) == 1:
            return {some[0]: error}
        found: dict[int, Answer | Exception | None] = {}
        for i in some:
            found |= _each(ask, [i])
        return found
