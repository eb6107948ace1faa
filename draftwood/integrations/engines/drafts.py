"""Drafts for the requests of an engine, which are known by the engine's own ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from draftwood.costs.curve import Curve, StepCosts
from draftwood.engine.lockstep import Drafted, draft, free, refuse_silent
from draftwood.engine.model_free_host import ModelFreeHost
from draftwood.errors import DraftwoodError
from draftwood.integrations.engines.acceptance import Acceptance
from draftwood.integrations.engines.rows import TopRows, no_rows, rows_of_text
from draftwood.methods.recipe import Method
from draftwood.protocols import (
    Bid,
    Built,
    Drafter,
    Growth,
    Outcome,
    Prefill,
    RequestLoad,
    StepReport,
    StepTimes,
    TargetInfo,
    TargetOutput,
    first_source,
)
from draftwood.protocols.step import PACE
from draftwood.tree import ROOT, SAMPLED, TokenTree, TreeBuilder

logger = logging.getLogger(__name__)

USUAL_COSTS = StepCosts(Curve((1, 101), (1.0, 2.0)), fixed=0.08)
"""Costs where none are given: a drafted token takes a hundredth of a forward of one token."""

FLAT_COSTS = StepCosts(Curve((1, 2), (1.0, 1.0)))
"""Costs of an engine whose forward has the same size whatever is drafted."""

_MOST_SAID = 16
"""Most failures that are logged."""


@dataclass(eq=False)
class _Request:
    """A request of the engine.

    Attributes:
        slot: number by which the drafters know it.
        tokens: how many are committed.
        anchor: the newest of them.
        state: the policy's.
        temperature: of its sampling.
        pace: committed tokens a step, moving average.
        drafted: for the step that runs; None: for none.
    """

    slot: int
    tokens: int
    anchor: int
    state: Any
    temperature: float
    pace: float = 1.0
    drafted: Drafted | None = None


@dataclass(eq=False)
class _Step:
    """The requests that were drafted for together, and what has become of them."""

    requests: Sequence[_Request] = ()
    drafted: Sequence[Drafted] = ()
    outcomes: dict[int, Outcome] = field(default_factory=dict)


class EngineDrafts:
    """The drafters and the policy of a method, for many requests of an engine.

    Two of them that are told the same draft the same: no clock and no random number is used, and
    costs do not change. So each rank of a tensor-parallel engine can draft for itself.

    A failure of our own never reaches the engine: it is logged once, and the request goes on
    without drafts.

    Args:
        method: one whose drafters have no model.
        vocab_size: of the target.
        context: longest sequence in tokens.
        costs: of the engine's steps; given for a method that weighs them.
        encode: tokenizes files of text that a drafter is given.
        vocabulary: digest of the tokenizer, against which tables and memories are checked.
        read_text: sources that learn from the target's likeliest tokens learn from the tokens of
            the text, as the engine gives no rows. Of drafts only accepted tokens have some then, so
            that an adjacency table needs ``harvest=accepted``.

    Attributes:
        needs: what the sources read of the target's rows.
        acceptance: of all steps so far.
        failures: of drafting, since all was forgotten.

    Raises:
        DraftwoodError: a drafter has a model or needs more of the target than its likeliest tokens,
            the method samples its drafts, or a setting does not fit.
    """

    def __init__(
        self,
        method: Method,
        *,
        vocab_size: int,
        context: int,
        costs: StepCosts = USUAL_COSTS,
        encode: Callable[[str], Sequence[int]] | None = None,
        vocabulary: str = "",
        read_text: bool = False,
    ) -> None:
        _check(method)
        unknown: Any = None
        info = TargetInfo(vocab_size, context, 0, 0, unknown, unknown)
        self._host = ModelFreeHost(info, costs, vocabulary, tokenize=encode)
        self._specs, self._policy = method.drafters, method.policy
        self._drafters = self._built()
        refuse_silent(self._policy, self._drafters)
        built = {name: Built(spec, self._drafters[name]) for name, spec in self._specs.items()}
        self._tuner = self._policy.tuner(self._host, built)
        self._context = context
        self._requests: dict[Hashable, _Request] = {}
        self._free: list[int] = []
        self._lost: set[Hashable] = set()  # drafting for them has failed
        self._step = _Step()
        self._said: set[str] = set()
        self.acceptance = Acceptance()
        self.failures = 0
        self.needs = method.policy.needs
        for drafter in self._drafters.values():
            self.needs |= drafter.needs
        self._read_text = read_text and self.needs.top_k > 0
        if self.needs.taps:
            raise DraftwoodError(f"method {method.name} reads hidden states, which are not at hand")

    def _built(self) -> dict[str, Drafter]:
        """New drafters, which know of no text but the given one."""
        host = replace(self._host, learnt={})
        return {name: spec.build(host) for name, spec in self._specs.items()}

    def __contains__(self, request: Hashable) -> bool:
        return request in self._requests

    def __len__(self) -> int:
        return len(self._requests)

    def length(self, request: Hashable) -> int:
        """Committed tokens of a request; 0 for one that is not known."""
        known = self._requests.get(request)
        return 0 if known is None else known.tokens

    def begin(
        self,
        request: Hashable,
        tokens: Sequence[int],
        rows: TopRows | None = None,
        *,
        namespace: str = "",
        temperature: float = 0.0,
    ) -> None:
        """Begin a request, or begin it anew; nothing happens if drafting for it has failed before.

        Args:
            request: the engine's id of it.
            tokens: its text so far, two or more; the last one is the next tree's root.
            rows: of the last positions before the root, or of all of them.
            namespace: whose text it is; text of others is not drafted from.
            temperature: of its sampling; 0: greedy.
        """
        if request not in self._lost:
            self._guarded(
                request, lambda: self._begin(request, tokens, rows, namespace, temperature)
            )

    def commit(self, request: Hashable, tokens: Sequence[int], rows: TopRows | None = None) -> None:
        """Learn of the tokens that a step has added; nothing happens if the request is not known.

        Args:
            request: the engine's id of it.
            tokens: accepted ones and the target's own after them; the last is the next root.
            rows: at all nodes of the drafted tree, in its order; None: they are not at hand.
        """
        if tokens and request in self._requests:
            self._guarded(request, lambda: self._commit(request, tokens, rows))

    def draft(
        self, requests: Sequence[Hashable], left: Sequence[int] | None = None
    ) -> list[TokenTree | None]:
        """A tree for each request, grown together; None for one that is not known, or has failed.

        Args:
            requests: the engine's ids, of all that take part in the next step.
            left: tokens that each may still generate; None: what the context holds.
        """
        known = [self._requests.get(each) for each in requests]
        rooms = [self._context] * len(requests) if left is None else left
        live = [
            (request, min(room, self._context - request.tokens))
            for request, room in zip(known, rooms, strict=True)
            if request is not None
        ]
        drafted: list[Drafted | None]
        try:
            self._settle()
            drafted = [*self._draft(live)] if live else []
        except Exception as error:  # noqa: BLE001 - the engine goes on
            self.report(error)
            ids = [each for each, own in zip(requests, known, strict=True) if own is not None]
            drafted = [self._alone(*each) for each in zip(ids, live, strict=True)]
            self._step = _Step()
        for (request, _), found in zip(live, drafted, strict=True):
            request.drafted = found
            if found is not None and found.error is not None:
                self.report(found.error)
        return [
            None if request is None or request.drafted is None else request.drafted.tree
            for request in known
        ]

    def _alone(self, request: Hashable, live: tuple[_Request, int]) -> Drafted | None:
        """The same for one request, where it has failed for all together."""
        found: list[Drafted] = []
        self._guarded(request, lambda: found.extend(self._draft([live])))
        return found[0] if found else None

    def withdraw(self, request: Hashable) -> None:
        """Take back a request's tree, which the engine does not verify; nobody learns from it."""
        known = self._requests.get(request)
        if known is not None:
            known.drafted = None

    def end(self, request: Hashable) -> None:
        """Forget a request that has ended; a memory keeps its text."""
        self._lost.discard(request)
        self._forget(request)

    def _forget(self, request: Hashable) -> None:
        known = self._requests.pop(request, None)
        if known is None:
            return
        for drafter in self._drafters.values():
            try:
                drafter.release(known.slot)
            except Exception as error:  # noqa: BLE001 - likewise
                self.report(error)
        self._free.append(known.slot)

    def clear(self) -> None:
        """Forget all requests and all text that they had.

        Sources begin anew, with the files that the method names; a memory's file is one of them,
        and has the text of these requests. What was learnt of acceptance stays.
        """
        for request in [*self._requests]:
            self._forget(request)
        self._free.clear()
        self._lost.clear()
        self._step, self._drafters, self.failures = _Step(), {}, 0
        try:
            self._drafters = self._built()
        except Exception as error:  # noqa: BLE001 - likewise: without sources nothing is drafted
            self.report(error)

    def _begin(
        self,
        request: Hashable,
        tokens: Sequence[int],
        rows: TopRows | None,
        namespace: str,
        temperature: float,
    ) -> None:
        self._forget(request)
        # First what may fail: a slot that is taken then would never be free again.
        prompt, anchor = np.array(tokens[:-1], dtype=np.int64), int(tokens[-1])
        if rows is None and self._read_text:
            rows = rows_of_text(tokens[1:], range(len(prompt)), len(prompt))
        begun = Prefill(prompt, anchor, _output(rows, self.needs.top_k), namespace)
        state = self._policy.start()
        slot = self._free.pop() if self._free else len(self._requests)
        self._requests[request] = _Request(slot, len(tokens), anchor, state, temperature)
        for drafter in self._drafters.values():
            drafter.begin(slot, begun)

    def _commit(self, request: Hashable, tokens: Sequence[int], rows: TopRows | None) -> None:
        own = self._requests[request]
        tree = TreeBuilder(own.anchor).build() if own.drafted is None else own.drafted.tree
        path = _accepted(tree, tokens)
        committed = tuple(map(int, tokens))
        if rows is None and self._read_text:
            known = [ROOT, *path]
            rows = rows_of_text(committed[: len(known)], known, len(tree))
        output = _output(rows, self.needs.top_k)
        outcome = Outcome(tree, path, committed, output)
        for drafter in self._drafters.values():
            drafter.observe(own.slot, outcome)
        own.state = self._policy.learn(own.state, outcome)
        # Steps that the engine left out have committed further ones.
        of_step = len(path) + 1
        own.pace += PACE * (of_step - own.pace)
        own.tokens += len(committed)
        own.anchor, own.drafted = committed[-1], None
        self._step.outcomes[own.slot] = outcome
        self.acceptance.add(tree, path, of_step)

    def _draft(self, live: Sequence[tuple[_Request, int]]) -> list[Drafted]:
        forecasts: Sequence[Any] = [None] * len(live)
        if self._tuner is not None:
            loads = [RequestLoad(r.tokens, room, r.pace, r.temperature) for r, room in live]
            forecasts = self._tuner.begin(loads)
        growths = [
            Growth(
                anchor=request.anchor,
                room=max(0, room - 1),
                budget=self._policy.budget,
                temperature=request.temperature,
                forecast=forecast,
            )
            for (request, room), forecast in zip(live, forecasts, strict=True)
        ]
        tuner = self._tuner
        price, levels = (free, first_source) if tuner is None else (tuner.price, tuner.levels)
        slots, states = [r.slot for r, _ in live], [r.state for r, _ in live]
        found = draft(self._policy, self._drafters, slots, growths, states, price, levels)
        self._step = _Step([request for request, _ in live], found)
        return found

    def _settle(self) -> None:
        """Let the tuner learn from the step before, of requests that have ended meanwhile too."""
        step, self._step = self._step, _Step()
        if self._tuner is None or not step.requests:
            return
        bids: list[Bid | None] = []
        outcomes: list[Outcome] = []
        for request, drafted in zip(step.requests, step.drafted, strict=True):
            outcome = step.outcomes.get(request.slot)
            if outcome is None or outcome.tree is not drafted.tree:
                outcome = Outcome(drafted.tree, (), (), _output(None, self.needs.top_k))
                bids.append(None)
            else:
                bids.append(drafted.bid)
            outcomes.append(outcome)
        self._tuner.observe(StepReport(bids, outcomes, StepTimes()))

    def _guarded(self, request: Hashable, work: Callable[[], None]) -> None:
        """Do some work for a request, which is forgotten if that fails."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - likewise
            self.report(error)
            self._forget(request)
            self._lost.add(request)

    def report(self, error: Exception) -> None:
        """Count a failure of drafting, and log it, once for each kind."""
        self.failures += 1
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(kind)
            logger.error(
                "drafting has failed, and the request goes on without drafts", exc_info=error
            )


def _check(method: Method) -> None:
    """Refuse a method that an engine's requests cannot be drafted with.

    Raises:
        DraftwoodError: see :class:`EngineDrafts`.
    """
    for name, spec in method.drafters.items():
        if spec.model is not None:
            raise DraftwoodError(
                f"method {method.name} drafts with a model ({name}): an engine runs its own; use "
                "auto"
            )
    if method.policy.draws & SAMPLED:
        raise DraftwoodError(
            f"method {method.name} samples its drafts, and engines accept drafts that are given: "
            "use auto"
        )


def _output(rows: TopRows | None, width: int) -> TargetOutput:
    return (no_rows(width) if rows is None else rows).output(width)


def _accepted(tree: TokenTree, tokens: Sequence[int]) -> tuple[int, ...]:
    """The nodes of a tree that the committed tokens pass, all but the last of which it may hold."""
    node, path = ROOT, []
    for token in tokens[:-1]:
        below = tree.child(node, int(token))
        if below is None:
            break
        path.append(below)
        node = below
    return tuple(path)
