"""A drafter that knows what the target will say, and tells it as often as one wants.

Everything it offers is a pure function of the text, so asking twice brings the same answer, and
the same rank at the same text is right in every tree. Knows nothing of policies.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import LevelLog
from draftwood.lab.replay.simulated.language import Language, State, mixed, share, shuffled
from draftwood.lab.replay.simulated.rates import Copies, Rates
from draftwood.protocols import Candidates, Continuation, Expand, Host, Needs, Outcome, Prefill
from draftwood.tree import Draw, TreeBuilder


@dataclass(frozen=True, eq=False)
class MadeUp:
    """Stands for any drafter in a method.

    Attributes:
        language: the target's.
        source: the name it goes by; drafters of different names err independently.
        rates: of what it ranks.
        copies: of what it copies.
        log: of its forwards, if it is to pass for a model; None if it is to be a table.
    """

    language: Language
    source: str
    rates: Rates
    copies: Copies
    log: LevelLog | None = None

    draws: ClassVar = frozenset({Draw.ONE_HOT})

    @property
    def model(self) -> str | None:
        """Its name, if it is to pass for a model."""
        return self.source if self.log is not None else None

    def build(self, host: Host) -> "MadeUpDrafter":  # noqa: ARG002
        """The drafter."""
        return MadeUpDrafter(self)


@dataclass
class _Slot:
    """A request: the text up to the root, how many tokens before the root a model would not have
    read, and the states of the growing tree's nodes."""

    root: State
    unread: int
    tree: TreeBuilder | None = None
    states: list[State] = field(default_factory=list)


class MadeUpDrafter:
    """Implements :class:`draftwood.protocols.Drafter`."""

    needs = Needs()

    def __init__(self, spec: MadeUp) -> None:
        self._spec = spec
        self._name = zlib.crc32(spec.source.encode())
        self._slots: dict[int, _Slot] = {}

    @property
    def forwards(self) -> int:
        """Those that a draft model would have made."""
        return self._spec.log.forwards if self._spec.log is not None else 0

    def backlog(self, slot: int) -> int:
        """What a draft model would not have read."""
        return self._slots[slot].unread if self._spec.log is not None else 0

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        state = self._spec.language.start()
        for token in (*prefill.prompt.tolist(), prefill.first):
            state = self._spec.language.after(state, token)
        self._slots[slot] = _Slot(state, len(prefill.prompt))
        self._next_step()

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed."""
        place = self._slots[slot]
        state = place.root
        for token in outcome.committed:
            state = self._spec.language.after(state, token)
        # Of a tree that the model was asked about, all but the next root has been read.
        unread = place.unread + len(outcome.committed) if place.tree is None else 0
        self._slots[slot] = _Slot(state, unread)
        self._next_step()

    def release(self, slot: int) -> None:
        """The request has ended."""
        self._slots.pop(slot, None)

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """None: nothing here is sampled.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("a made-up drafter draws nothing; its children are one-hot")

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """A chain after the root in the share of steps that copies have."""
        return [self._copied(self._slots[slot].root) for slot in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """At most ``k`` children of each node, and no more than there are rates.

        Raises:
            DraftwoodError: a query asks for sampled children.
        """
        return [self._ranked(self._slots[s], q) for s, q in zip(slots, queries, strict=True)]

    def _next_step(self) -> None:
        if self._spec.log is not None:
            self._spec.log.next_step()

    def _ranked(self, place: _Slot, query: Expand) -> Candidates:
        if query.draw is not Draw.ONE_HOT:
            raise DraftwoodError("a made-up drafter draws nothing; ask it for one-hot children")
        tree, after = query.tree, self._spec.language.after
        if place.tree is not tree:
            place.tree, place.states = tree, [place.root]
        for node in range(len(place.states), len(tree)):
            above = place.states[tree.parents[node]]
            place.states.append(after(above, tree.tokens[node]))
        if self._spec.log is not None:
            self._spec.log.ask(tree, query.nodes)
        tokens = np.full((len(query.nodes), query.k), -1, dtype=np.int64)
        q = np.zeros((len(query.nodes), query.k), dtype=np.float32)
        for i, node in enumerate(query.nodes):
            offered, shares = self._row(place.states[node])
            banned = query.exclude[i] if query.exclude else frozenset[int]()
            kept = [j for j, token in enumerate(offered) if token not in banned][: query.k]
            tokens[i, : len(kept)] = [offered[j] for j in kept]
            q[i, : len(kept)] = [shares[j] for j in kept]
        with np.errstate(divide="ignore"):
            return Candidates(tokens, np.log(q))

    def _row(self, state: State) -> tuple[list[int], list[float]]:
        """Tokens by rank, and the chance of each that it is right."""
        language, key = self._spec.language, mixed(state.whole, self._name)
        q = self._spec.rates.at(share(mixed(key, 1)))
        right = language.taken(state)
        # One more than there are ranks: the right one may be among them.
        others = shuffled(
            mixed(key, 2), language.vocabulary, 0, min(len(q) + 1, language.vocabulary)
        )
        found = [token for token in others if token != right][: len(q)]
        left = share(mixed(key, 3))
        for rank, chance in enumerate(q):
            left -= chance
            if left < 0.0:
                found[rank] = right
                break
        return found, q

    def _copied(self, state: State) -> tuple[Continuation, ...]:
        language, copies = self._spec.language, self._spec.copies
        key = mixed(state.whole, self._name)
        if share(mixed(key, 4)) >= copies.match:
            return ()
        tokens: list[int] = []
        going = True
        for i in range(copies.length):
            right = language.taken(state)
            token = right
            going = going and share(mixed(key, 5 + i)) < copies.rate
            if not going:
                wrong = shuffled(mixed(key, 5 + i), language.vocabulary, 0, 2)
                token = next(t for t in wrong if t != right)
            tokens.append(token)
            state = language.after(state, token)
        return (Continuation(tuple(tokens), copies.match_length, count=1, agreeing=1),)
