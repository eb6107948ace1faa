"""The phases of a step: draft, submit, wait, verify, commit, learn.

:class:`Phases` owns the drafters and the tuner of an engine, and is handed the running requests.
It knows nothing of the queue, of events and of when a request ends.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass, field, replace
from functools import reduce
from operator import or_
from time import perf_counter
from typing import Any

import numpy as np
import torch

from draftwood.engine.batch import Batch
from draftwood.engine.early import EarlyVerdicts, begin
from draftwood.engine.features import FeatureShare, picked
from draftwood.engine.isolation import each_verified
from draftwood.engine.joining import JoiningRequest
from draftwood.engine.lockstep import Drafted, draft, free, refuse_silent
from draftwood.engine.prompts import Prompts
from draftwood.engine.request import Delta, FinishReason
from draftwood.engine.sequence import RunningRequest
from draftwood.methods import registry
from draftwood.methods.recipe import Method
from draftwood.protocols import (
    Built,
    DrafterSpec,
    Host,
    LevelBid,
    Needs,
    Outcome,
    PooledTarget,
    Prediction,
    Prefill,
    StepReport,
    StepTimes,
    Submitted,
    Target,
    TargetOutput,
    Verdict,
    Verification,
    first_source,
    shared,
)
from draftwood.runner.to_host import unread
from draftwood.sampling.ahead import DrawsAhead
from draftwood.sampling.distributions import TreeDistributions, TreeProposals
from draftwood.tree import ROOT, SAMPLED, TokenTree, TreeBuilder


@dataclass(frozen=True)
class Begun:
    """A forward of the target, and what was queued behind it.

    Attributes:
        submitted: the forward.
        drawn: for each tree the tokens after its nodes, on the device, or None; empty: for none.
        early: verification that does not wait for the output.
    """

    submitted: Submitted
    drawn: Sequence[torch.Tensor | None] = ()
    early: EarlyVerdicts = field(default_factory=EarlyVerdicts)


class Phases:
    """The phases of a step of one method on one target.

    Args:
        target: scores the trees.
        method: its policy, drafters and verifier.
        host: where the drafters are built.

    Attributes:
        prompts: of the requests that join.

    Raises:
        DraftwoodError: a drafter's settings do not fit the target, or it never answers what the
            policy asks.
    """

    def __init__(self, target: Target, method: Method, host: Host) -> None:
        self._target = target
        self._shared = shared(target)
        self._policy = method.policy
        self._verifier = method.verifier
        specs: dict[str, DrafterSpec] = dict(method.drafters)
        for name in method.policy.grammar_sources:
            specs[name] = registry.load("drafters", name)()
        self._drafters = {n: spec.build(host) for n, spec in specs.items()}
        refuse_silent(method.policy, self._drafters)
        built = {n: Built(spec, self._drafters[n]) for n, spec in specs.items()}
        self._tuner = method.policy.tuner(host, built)
        # Seconds of the tuner in the last step that searched for a tree, and in the last other one.
        self._teaching = {True: 0.0, False: 0.0}
        drafters = self._drafters.values()
        # Tokens of drafts that are sampled depend on when a request drafts; with a tuner they do so
        # anyway.
        if self._tuner is not None or not method.policy.draws & SAMPLED:
            for drafter in drafters:
                drafter.read_in_pieces()
        self._needs = reduce(or_, (d.needs for d in drafters), method.policy.needs)
        self._shares = [(d, FeatureShare(self._needs.taps, d.needs.taps)) for d in drafters]
        self.prompts = Prompts(target, self._needs, self._tuner)

    def begin(self, joined: JoiningRequest) -> tuple[Delta, FinishReason | None]:
        """The first token of a request whose prompt is cached."""
        sequence, rows = joined.sequence, joined.output(prompt_rows=self._needs.prompt_rows)
        request, slot = sequence.request, sequence.slot
        # It follows a tree that is the prompt's last token alone.
        last = TreeBuilder(request.ids[-1]).build()
        p = TreeDistributions(rows, last, sequence.sampler, sequence.history, sequence.mask(last))
        first = p.draw(ROOT, sequence.noise)
        ids = np.array(request.ids, dtype=np.int64)
        begun = Prefill(ids, first, rows, request.namespace, sequence.constraint)
        if sequence.rows is not None:
            sequence.rows.begin(rows)
        for drafter, share in self._shares:
            drafter.begin(slot, share.of(begun))
        if request.observer is not None:
            request.observer(begun)
        sequence.state = self._policy.start()
        taken = sequence.take([first], (), rows.logits)
        delta = sequence.told(taken)
        sequence.ttft = perf_counter() - sequence.started
        return delta, taken.reason

    def draft(self, batch: Batch) -> list[Drafted]:
        """Grow a tree for each request, by the tuner's forecasts if the policy has a tuner."""
        live, tuner = batch.live, self._tuner
        forecasts: Sequence[Any] = [None] * len(live)
        if tuner is not None:
            loads = [s.load(self._backlogs(s.slot)) for s in live]
            tuner.reads_within(batch.prompt_tokens)
            forecasts = tuner.begin(loads)
        growths = [s.growth(self._policy.budget, f) for s, f in zip(live, forecasts, strict=True)]
        states = [s.state for s in live]
        price, decide = (free, first_source) if tuner is None else (tuner.price, tuner.levels)

        def levels(bids: Mapping[str, Sequence[LevelBid]]) -> tuple[str, Sequence[int]]:
            if batch.search is None:
                batch.search = batch.watch.since
            return decide(bids)

        constraints = [s.constraint for s in live]
        drafted = draft(
            self._policy, self._drafters, batch.slots, growths, states, price, levels, constraints
        )
        for s, found in zip(live, drafted, strict=True):
            if found.error is not None:
                batch.failures[s.number] = found.error
        batch.watch.lap("draft")
        return drafted

    def submit(self, batch: Batch, trees: Sequence[TokenTree]) -> Begun:
        """Begin the target's forward over all trees; :meth:`rows` takes what is returned.

        On another device than the CPU, tokens are drawn after all nodes in the same go, and sampled
        trees tested. A CPU would compute more than the verifier asks for.
        """
        if not self.beside:
            return Begun(self._with_pieces(batch, trees))
        ahead = DrawsAhead()
        for s, tree in zip(batch.live, trees, strict=True):
            ahead.add(tree, s.sampler, s.history, s.noise, s.mask(tree))
        submitted = self._target.submit(batch.slots, trees, self._needs, ahead.numbers)
        drawn = ahead.draw(submitted) if ahead.any else ()
        early = begin(self._verifier, self._drawn_cases(batch, trees, submitted))
        return Begun(submitted, drawn, early)

    def _with_pieces(self, batch: Batch, trees: Sequence[TokenTree]) -> Submitted:
        """A forward over the trees and the pieces of prompts that go with it."""
        if batch.pieces:
            assert self.prompts.resumable is not None
            pieces = {piece.slot: piece.ids for piece in batch.pieces}
            try:
                return self.prompts.resumable.submit_with_pieces(
                    batch.slots, trees, self._needs, pieces
                )
            except Exception as error:  # noqa: BLE001 - those that run have no part in it
                batch.unread = error
        return self._target.submit(batch.slots, trees, self._needs)

    def _drawn_cases(
        self, batch: Batch, trees: Sequence[TokenTree], submitted: Submitted
    ) -> Iterator[tuple[int, Verification]]:
        """By request, the trees of requests that sample, before the output is on the host."""
        for s, tree, logits in zip(batch.live, trees, submitted.logits, strict=True):
            if s.sampler.do_sample and s.sampler.by_rows and batch.sound(s):
                yield s.number, self._case(s, tree, TargetOutput(logits, *unread()))

    def rows(self, batch: Batch, begun: Begun) -> list[TargetOutput]:
        """Wait for the output of a forward; that of pieces of prompts goes to their requests."""
        early = begun.early
        rows, early.found = begun.submitted.rows_with(begun.drawn, early.tensors)
        for piece, found in zip(batch.read, rows[len(batch.live) :], strict=True):
            piece.request.add(piece.tokens, found)
        batch.watch.lap("target")
        return rows[: len(batch.live)]

    def verify(
        self,
        batch: Batch,
        trees: Sequence[TokenTree],
        rows: Sequence[TargetOutput],
        early: EarlyVerdicts,
    ) -> list[Outcome]:
        """The accepted path of each tree; an empty one for a request that has failed.

        ``early``: what has begun before the rows were there.
        """
        cases = {
            s.number: self._case(s, tree, found)
            for s, tree, found in zip(batch.live, trees, rows, strict=True)
            if batch.sound(s)
        }
        verdicts: dict[int, Verdict | Exception] = {**early.verdicts(cases)}
        left = {number: case for number, case in cases.items() if number not in verdicts}
        if left:
            verified = each_verified(self._verifier.verify, list(left.values()))
            verdicts.update(zip(left, verified, strict=True))
        outcomes = []
        for s, tree, found in zip(batch.live, trees, rows, strict=True):
            verdict = verdicts.get(s.number)
            if isinstance(verdict, Exception):
                batch.failures[s.number] = verdict
            if isinstance(verdict, Verdict):
                outcomes.append(_outcome(tree, verdict, found))
            else:
                outcomes.append(Outcome(tree, (), (), found))
        batch.watch.lap("verify")
        return outcomes

    def commit(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        """Keep the accepted paths in the target's cache, as far as the requests' texts go.

        Of pieces of prompts all tokens are kept.
        """
        paths = [
            _until_end(outcome, s.request.ends)
            for s, outcome in zip(batch.live, outcomes, strict=True)
        ]
        paths += [range(1, piece.tokens) for piece in batch.read]
        self._target.commit([*batch.slots, *(piece.slot for piece in batch.read)], paths)
        batch.watch.lap("commit")

    def learn(
        self, batch: Batch, drafted: Sequence[Drafted], outcomes: Sequence[Outcome]
    ) -> list[Prediction | None]:
        """Pass the outcomes to the drafters, the observer, the policy and the tuner."""
        if self.beside and self._needs.taps:
            outcomes = picked(outcomes)
        for s, outcome in zip(batch.live, outcomes, strict=True):
            if batch.sound(s):
                with batch.failures.of(s.number):
                    for drafter, share in self._shares:
                        drafter.observe(s.slot, share.of(outcome))
                    if s.request.observer is not None:
                        s.request.observer(outcome)
                    s.state = self._policy.learn(s.state, outcome)
                    if s.rows is not None:
                        s.rows.add(outcome)
        batch.watch.lap("learn")
        if self._tuner is None:
            return [None] * len(outcomes)
        bids = [
            found.bid if batch.sound(s) else None
            for s, found in zip(batch.live, drafted, strict=True)
        ]
        searched = any(bid is not None for bid in bids)
        times, search = self._times(batch, self._teaching[searched])
        begun = perf_counter()
        report = StepReport(bids, outcomes, times, batch.recorded, search, batch.prompt_tokens)
        predictions = self._tuner.observe(report)
        self._teaching[searched] = perf_counter() - begun
        batch.watch.lap("learn")
        return predictions

    def _times(self, batch: Batch, teaching: float) -> tuple[StepTimes, float | None]:
        """The step's times so far, and those of its search.

        Those of the first of the processes that run the target. What the tuner will take is not
        known yet: ``teaching`` is what it took in the last such step.
        """
        times, search = batch.watch.times, batch.search
        times = replace(times, learn=times.learn + teaching)
        if self._shared is None:
            return times, search
        *found, first = self._shared.of_first((*astuple(times), search or 0.0))
        return StepTimes(*found), None if search is None else first

    @property
    def price(self) -> float | None:
        """Value, in tokens, from which on one more node paid recently; None without a tuner."""
        return None if self._tuner is None else self._tuner.recent_price

    @property
    def needs(self) -> Needs:
        """What the drafters and the policy need of the target."""
        return self._needs

    @property
    def beside(self) -> bool:
        """Whether forwards run beside the host's work, on another device than the CPU."""
        return self._target.info.device.type != "cpu"

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in the caches of the target and of the drafters' models."""
        drafts = sum(drafter.token_bytes for drafter in self._drafters.values())
        return self._target.info.token_bytes + drafts

    @property
    def slot_bytes(self) -> int:
        """Bytes of a request's recurrent states in the target and the drafters' models."""
        drafts = sum(drafter.slot_bytes for drafter in self._drafters.values())
        return self._target.info.slot_bytes + drafts

    @property
    def node_bytes(self) -> int:
        """Bytes of a tree's node that recurrent layers keep until the commit, in all models."""
        drafts = sum(drafter.node_bytes for drafter in self._drafters.values())
        return self._target.info.node_bytes + drafts

    @property
    def draft_forwards(self) -> int:
        """Forwards of draft models and heads since the drafters were built."""
        return sum(drafter.forwards for drafter in self._drafters.values())

    def allocate(self, tokens: int) -> None:
        """Make the pools of all caches at once, each of so many tokens."""
        if isinstance(self._target, PooledTarget):
            self._target.allocate(tokens)
        for drafter in self._drafters.values():
            drafter.allocate(tokens)

    def trim(self) -> None:
        """Give back the memory of all caches; no request runs."""
        self._target.trim()
        for drafter in self._drafters.values():
            drafter.trim()

    def cut(self, slot: int, tokens: int) -> None:
        """Tell the drafters that a text ended before its last ``tokens`` committed tokens."""
        for drafter in self._drafters.values():
            drafter.cut(slot, tokens)

    def release(self, slot: int) -> None:
        """Let the drafters and the target forget a slot, even if one of them raises."""
        with ExitStack() as releases:
            releases.callback(self._target.release, slot)
            for drafter in self._drafters.values():
                # A request that failed in its prefill has no index yet.
                releases.enter_context(suppress(KeyError))
                releases.callback(drafter.release, slot)

    def _case(self, sequence: RunningRequest, tree: TokenTree, rows: TargetOutput) -> Verification:
        mask = sequence.mask(tree)
        ends = sequence.request.ends
        p = TreeDistributions(rows, tree, sequence.sampler, sequence.history, mask, ends)
        q = TreeProposals(self._drafters, sequence.slot, tree, mask)
        return Verification(tree, p, q, sequence.noise)

    def _backlogs(self, slot: int) -> dict[str, int]:
        return {source: drafter.backlog(slot) for source, drafter in self._drafters.items()}


def _outcome(tree: TokenTree, verdict: Verdict, rows: TargetOutput) -> Outcome:
    committed = (*(int(tree.tokens[i]) for i in verdict.path), verdict.bonus)
    return Outcome(tree, verdict.path, committed, rows)


def _until_end(outcome: Outcome, ends: Collection[int]) -> Sequence[int]:
    """The accepted path, up to the first token that ends the request.

    A model with recurrent layers cannot go back from nodes behind it, and the next turn of a chat
    continues there.
    """
    if ends:
        for i, token in enumerate(outcome.committed[:-1], 1):
            if token in ends:
                return outcome.path[:i]
    return outcome.path
