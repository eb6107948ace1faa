"""Runs the policies of a batch in lockstep: one tree per sequence, one drafter call per round.

A policy is written for one sequence and yields queries; here the queries that all sequences wait
on are gathered by drafter and answered together. Bids wait until every sequence has bid or ended,
so that one price is made of all. Knows nothing of targets and verifiers.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.bids import FREE, Bid, Price
from draftwood.protocols import Answer, Continue, Drafter, Expand, Growth, Policy, Query
from draftwood.tree import TokenTree


@dataclass(frozen=True, eq=False)
class Drafted:
    """A finished tree, and the bid that the policy made for it, if it made one."""

    tree: TokenTree
    bid: Bid | None


def free(bids: Sequence[Bid]) -> Price:  # noqa: ARG001
    """A price at which every candidate is worth its cost."""
    return FREE


def draft(
    policy: Policy,
    drafters: Mapping[str, Drafter],
    slots: Sequence[int],
    growths: Sequence[Growth],
    states: Sequence[Any],
    price: Callable[[Sequence[Bid]], Price] = free,
) -> list[Drafted]:
    """One tree per slot.

    Args:
        policy: grows each tree.
        drafters: by the source names that the policy's queries use.
        slots: where the drafters keep each sequence.
        growths: what the policy may know of each sequence.
        states: the policy's state of each sequence.
        price: answers the bids of all sequences.
    """
    trees: list[TokenTree | None] = [None] * len(slots)
    growers = [policy.grow(growth, state) for growth, state in zip(growths, states, strict=True)]
    answers: dict[int, Answer | None] = dict.fromkeys(range(len(slots)))
    bids: dict[int, Bid] = {}
    while answers:
        queries: dict[int, Query] = {}
        for i, answer in answers.items():
            try:
                queries[i] = growers[i].send(answer)
            except StopIteration as finished:
                trees[i] = finished.value
        bids |= {i: query for i, query in queries.items() if isinstance(query, Bid)}
        answers = _answer(drafters, slots, queries)
        waiting = [] if answers else [i for i in bids if trees[i] is None]
        if waiting:
            answers = dict.fromkeys(waiting, price([bids[i] for i in waiting]))
    return [Drafted(tree, bids.get(i)) for i, tree in enumerate(trees) if tree is not None]


def _answer(
    drafters: Mapping[str, Drafter], slots: Sequence[int], queries: Mapping[int, Query]
) -> dict[int, Answer | None]:
    """Answers to all queries but bids."""
    copies: dict[str, list[int]] = defaultdict(list)
    expansions: dict[str, list[tuple[int, Expand]]] = defaultdict(list)
    for i, query in queries.items():
        if isinstance(query, Continue):
            copies[query.source].append(i)
        elif isinstance(query, Expand):
            expansions[query.source].append((i, query))
    answers: dict[int, Answer | None] = {}
    for source, members in copies.items():
        found = drafters[source].continuations([slots[i] for i in members])
        answers.update(zip(members, found, strict=True))
    for source, asked in expansions.items():
        offered = drafters[source].expand([slots[i] for i, _ in asked], [q for _, q in asked])
        answers.update(zip((i for i, _ in asked), offered, strict=True))
    return answers
