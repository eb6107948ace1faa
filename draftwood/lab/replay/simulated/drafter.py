"""A drafter that proposes the target's next token at given rates.

Candidates are a pure function of the text: the same rank after the same text is right in every
tree.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from draftwood.lab.replay.drafter import first_allowed
from draftwood.lab.replay.forward_log import ForwardLog
from draftwood.lab.replay.simulated.language import Language, State, mix, permuted, uniform
from draftwood.lab.replay.simulated.rates import CopyRates, RankRates
from draftwood.protocols import (
    Candidates,
    Continuation,
    Drafter,
    DrafterSpec,
    Expand,
    Host,
    Outcome,
    Prefill,
)
from draftwood.tree import TreeBuilder


@dataclass
class SimulatedDraft:
    """A request and its growing tree.

    It has the text up to the root, the number of tokens before the root that a model would not have
    cached, and the states of the tree's nodes.
    """

    root: State
    uncached: int
    tree: TreeBuilder | None = None
    states: list[State] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class SimulatedDrafter(DrafterSpec, Drafter):
    """Settings and drafter in one, in the place of any drafter of a method.

    Attributes:
        language: the target's language.
        source: source name; drafters with different names err independently.
        rates: acceptance by rank of its candidates.
        copies: rates of its copied chains.
        log: counts its forwards; None if it simulates a drafter without a model.
    """

    language: Language
    source: str
    rates: RankRates
    copies: CopyRates
    log: ForwardLog | None = None
    _slots: dict[int, SimulatedDraft] = field(default_factory=dict, init=False)

    @property
    def model(self) -> str | None:
        """The source name, if it simulates a model."""
        return self.source if self.log is not None else None

    def build(self, host: Host) -> Drafter:  # noqa: ARG002
        """This drafter."""
        return self

    @property
    def forwards(self) -> int:
        """Forwards that a draft model would have made."""
        return self.log.forwards if self.log is not None else 0

    def backlog(self, slot: int) -> int:
        """Number of tokens that a draft model would not have cached."""
        return self._slots[slot].uncached if self.log is not None else 0

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Start a request."""
        state = self.language.start()
        for token in (*prefill.prompt.tolist(), prefill.first):
            state = self.language.after(state, token)
        self._slots[slot] = SimulatedDraft(state, len(prefill.prompt))
        self._next_step(slot)

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Append the committed tokens."""
        request = self._slots[slot]
        state = request.root
        for token in outcome.committed:
            state = self.language.after(state, token)
        # A tree that the model has scored is cached, except for the next root.
        uncached = request.uncached + len(outcome.committed) if request.tree is None else 0
        self._slots[slot] = SimulatedDraft(state, uncached)
        self._next_step(slot)

    def release(self, slot: int) -> None:
        """Forget a request."""
        self._slots.pop(slot, None)
        self._next_step(slot)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """A copied chain after the root, at the given rate of matches."""
        return [self._copied(self._slots[slot].root) for slot in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """At most ``k`` children of each node, no more than there are rates."""
        found = [self._ranked(self._slots[s], q) for s, q in zip(slots, queries, strict=True)]
        if self.log is not None:
            asked = zip(slots, queries, strict=True)
            self.log.score((slot, query.tree, query.nodes) for slot, query in asked)
        return found

    def _next_step(self, slot: int) -> None:
        if self.log is not None:
            self.log.next_step(slot)

    def _ranked(self, request: SimulatedDraft, query: Expand) -> Candidates:
        tree, after = query.tree, self.language.after
        if request.tree is not tree:
            request.tree, request.states = tree, [request.root]
        for node in range(len(request.states), len(tree)):
            above = request.states[tree.parents[node]]
            request.states.append(after(above, tree.tokens[node]))
        rows = [self._row(request.states[node]) for node in query.nodes]
        tokens = np.array([offered for offered, _ in rows], dtype=np.int64)
        q = np.array([shares for _, shares in rows], dtype=np.float32)
        return first_allowed(Candidates(tokens, np.log(q)), query)

    def _row(self, state: State) -> tuple[list[int], list[float]]:
        """Tokens by rank, and the probability of each to be the target's token."""
        language, key = self.language, mix(state.whole, zlib.crc32(self.source.encode()))
        q = self.rates.at(uniform(mix(key, 1)))
        right = language.next_token(state)
        # One more than there are ranks, because the right token may be among them.
        others = permuted(mix(key, 2), language.vocabulary, 0, len(q) + 1)
        found = [token for token in others if token != right][: len(q)]
        left = uniform(mix(key, 3))
        for rank, p in enumerate(q):
            left -= p
            if left < 0.0:
                found[rank] = right
                break
        return found, q

    def _copied(self, state: State) -> tuple[Continuation, ...]:
        language, copies = self.language, self.copies
        key = mix(state.whole, zlib.crc32(self.source.encode()))
        if uniform(mix(key, 4)) >= copies.match:
            return ()
        tokens: list[int] = []
        going = True
        for i in range(copies.copied):
            right = language.next_token(state)
            token = right
            going = going and uniform(mix(key, 5 + i)) < copies.rate
            if not going:
                wrong = permuted(mix(key, 5 + i), language.vocabulary, 0, 2)
                token = next(t for t in wrong if t != right)
            tokens.append(token)
            state = language.after(state, token)
        return (Continuation(tuple(tokens), copies.match_length, count=1, agreeing=1),)
