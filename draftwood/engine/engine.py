"""The loop: draft, verify, commit, for a batch of requests in lockstep.

The engine owns the queue of requests and what belongs to one of them (its tokens, its policy's
state, its random stream, its text); the target owns tensors, the drafters own their indices.
A request's tokens never depend on its batch mates; where a policy draws as much as pays with random
numbers of its own, their law never does.
"""

import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import reduce
from operator import or_
from os import PathLike
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from draftwood import methods, models
from draftwood.engine.host import ModelHost
from draftwood.engine.isolation import Failures, each_judged
from draftwood.engine.lockstep import draft
from draftwood.engine.request import (
    Completion,
    Delta,
    Event,
    Finished,
    FinishReason,
    Request,
    Stepped,
    admit,
    prepared,
)
from draftwood.engine.sequence import RunningRequest
from draftwood.engine.stats import StepStats, StepTimes
from draftwood.errors import DraftwoodError, integer
from draftwood.methods.recipe import Method
from draftwood.models import eos_of
from draftwood.protocols import (
    Built,
    Host,
    Needs,
    Outcome,
    Prefill,
    Target,
    TargetOutput,
    Verdict,
    Verification,
)
from draftwood.protocols.tuning import Spent
from draftwood.runner.attach import runner_of
from draftwood.sampling.distributions import TreeDistributions, TreeProposals
from draftwood.tree import ROOT, TokenTree, TreeBuilder

logger = logging.getLogger(__name__)


class Makes(Protocol):
    """Anything that carries a method, such as what ``draftwood.goose()`` returns."""

    @property
    def method(self) -> Method: ...


class Engine:
    """Decodes requests with one method on one target.

    Args:
        target: the model: one of transformers, which is attached, or an attached one.
        method: what drafts, shapes and verifies the trees: its name, e.g. ``"goose:budget=16"``, a
            :class:`draftwood.Method`, or what ``draftwood.goose(budget=16)`` returns.
        tokenizer: needed for prompts that are text, for the text of what is generated, and for
            stop strings.
        max_batch: most requests decoded at once; more wait in a queue.
        host: where drafters are built; engines that share one share draft models.

    Raises:
        DraftwoodError: trees cannot be run on the model, there is no such method, or a drafter's
            settings do not fit the target.
    """

    def __init__(
        self,
        target: Target | PreTrainedModel,
        method: Method | Makes | str = "auto",
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        max_batch: int = 64,
        host: Host | None = None,
    ) -> None:
        max_batch = integer("max_batch", max_batch)
        if max_batch < 1:
            raise DraftwoodError(f"max_batch is {max_batch}: it must be at least 1")
        self.method = method = _method(method)
        self.target = _target(target)
        self.tokenizer = tokenizer
        self.max_batch = max_batch
        self._eos = self.target.info.eos or eos_of(None, tokenizer)
        host = host or ModelHost(self.target, tokenizer)
        self._drafters = {n: spec.build(host) for n, spec in method.drafters.items()}
        built = {n: Built(spec, self._drafters[n]) for n, spec in method.drafters.items()}
        self._tuner = method.tuner.build(host, built)
        self._needs = reduce(or_, (d.needs for d in self._drafters.values()), Needs())
        self._numbers = itertools.count()
        self._waiting: deque[RunningRequest] = deque()
        self._active: dict[int, RunningRequest] = {}
        self._events: list[Event] = []  # not handed out yet

    @classmethod
    def load(
        cls,
        name: str | PathLike[str] = "embedded",
        method: Method | Makes | str = "auto",
        *,
        dtype: str = "auto",
        device: str = "auto",
        trust_remote_code: bool = False,
        max_batch: int = 64,
    ) -> "Engine":
        """An engine on a model and its tokenizer, loaded by :func:`draftwood.load`.

        Raises:
            DraftwoodError: the model cannot be loaded, or see above.
        """
        loaded = models.load(name, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        return cls(loaded.model, method, loaded.tokenizer, max_batch=max_batch)

    def add(self, request: Request) -> int:
        """Queue a request; returns its number.

        Raises:
            DraftwoodError: something is of a wrong type, the prompt is empty, holds an unknown id
                or exceeds the context, or a limit, a sampling setting or a stop string cannot be
                honoured.
        """
        request = prepared(request, self.tokenizer, self._eos)
        limit = admit(request, self.target.info, text=self.tokenizer is not None)
        sequence = RunningRequest(next(self._numbers), request, limit, self.tokenizer)
        self._waiting.append(sequence)
        return sequence.number

    def cancel(self, number: int) -> Finished | None:
        """End a waiting or running request now; None if it is not there (any more).

        Of a request that a failed step has ended, this is its end; :meth:`step` does not repeat it.
        """
        waiting = next((s for s in self._waiting if s.number == number), None)
        if waiting is not None:
            self._waiting.remove(waiting)
            return Finished(number, waiting.completion("cancelled"))
        if number in self._active:
            self._finish(self._active[number], "cancelled")
        own = [event for event in self._events if event.request_id == number]
        self._events = [event for event in self._events if event.request_id != number]
        return next((event for event in own if isinstance(event, Finished)), None)

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs, or a failed step has left events."""
        return bool(self._waiting or self._active or self._events)

    def stream(self, requests: Sequence[Request]) -> Iterator[Event]:
        """Decode the requests, numbered in order, and yield events as they happen.

        Closing the iterator cancels what is still running.
        """
        if isinstance(requests, (Request, str)) or not isinstance(requests, Iterable):
            raise DraftwoodError("an engine takes a list of requests: write [request]")
        numbers: list[int] = []
        try:
            numbers += map(self.add, requests)
            while self.busy:
                yield from self.step()
        finally:
            for number in numbers:
                self.cancel(number)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests to their ends, in order.

        Of one that failed the completion has the error; :meth:`draftwood.Completion.checked` raises
        it. Requests added before are decoded, too; the next :meth:`step` has their events.
        """
        others = {s.number for s in self._waiting} | {*self._active}
        others |= {event.request_id for event in self._events}
        events = list(self.stream(requests))
        self._events += [e for e in events if e.request_id in others]
        done = [e for e in events if isinstance(e, Finished) and e.request_id not in others]
        return [e.completion for e in sorted(done, key=lambda e: e.request_id)]

    def step(self) -> list[Event]:
        """Admit waiting requests, then draft, verify and commit once for all running ones.

        A request whose own work raises an exception (a logits processor, a stopping criterion, an
        observer, its text, logits that are not numbers) ends with reason ``"error"``; the others go
        on with the tokens that they would have had without it.

        Raises:
            Exception: what was done for all at once failed, such as a forward of the model. The
                requests that ran are cancelled and the engine can be used on; those that wait stay.
                The events of this step, those ends included, come with the next call.
        """
        try:
            self._admit()
            if self._active:
                self._advance(list(self._active.values()))
        except Exception:
            for sequence in list(self._active.values()):
                with suppress(Exception):  # what failed may fail again; it is what is raised
                    self._finish(sequence, "cancelled")
            raise
        events, self._events = self._events, []
        return events

    def _advance(self, live: Sequence[RunningRequest]) -> None:
        """Draft, verify and commit once for all running requests."""
        slots, states = [s.slot for s in live], [s.state for s in live]
        clock = [perf_counter()]
        policy, tuner = self.method.policy, self._tuner
        forwards = self._forwards()
        loads = [s.load(self._backlog(s.slot)) for s in live]
        outlooks = tuner.begin(loads, queued=bool(self._waiting))
        growths = [s.growth(policy.budget, o) for s, o in zip(live, outlooks, strict=True)]
        drafted = draft(policy, self._drafters, slots, growths, states, tuner.price)
        trees = [found.tree for found in drafted]
        failures = Failures()
        for s, found in zip(live, drafted, strict=True):
            if found.error is not None:
                failures[s.number] = found.error
        clock.append(perf_counter())
        rows = self.target.forward(slots, trees, self._needs)
        clock.append(perf_counter())
        outcomes = self._outcomes(live, trees, rows, failures)
        clock.append(perf_counter())
        self.target.commit(slots, [outcome.path for outcome in outcomes])
        clock.append(perf_counter())
        for sequence, outcome in zip(live, outcomes, strict=True):
            if sequence.number not in failures:
                with failures.of(sequence.number):
                    self._learn(sequence, outcome)
        bids = [
            None if s.number in failures else found.bid
            for s, found in zip(live, drafted, strict=True)
        ]
        spent = Spent(clock[1] - clock[0], clock[2] - clock[1], perf_counter() - clock[2])
        told = tuner.observe(bids, outcomes, spent)
        clock.append(perf_counter())
        times = StepTimes(*(b - a for a, b in itertools.pairwise(clock)))
        forwards = self._forwards() - forwards
        for sequence, outcome, foretold in zip(live, outcomes, told, strict=True):
            number, reason = sequence.number, None
            if number not in failures:
                with failures.of(number):
                    delta, reason = sequence.take(outcome.committed, len(outcome.path))
                    committed, path = len(delta.tokens), outcome.path
                    stats = StepStats(
                        outcome.tree, path, committed, times, len(live), forwards, foretold
                    )
                    sequence.tally.add(stats)
                    self._events += [delta, Stepped(number, stats)]
            self._end(sequence, reason, failures)

    def _admit(self) -> None:
        """Prefill as many waiting requests as there is room for, and draw their first tokens."""
        joining: list[RunningRequest] = []
        most = self.method.policy.budget + 1
        while self._waiting and len(self._active) < self.max_batch:
            s = self._waiting[0]
            s.slot = self.target.open(len(s.request.ids) + s.limit + most)
            self._active[s.number] = self._waiting.popleft()
            joining.append(s)
        if not joining:
            return
        prompts = [s.request.ids for s in joining]
        rows = self.target.prefill([s.slot for s in joining], prompts, self._needs)
        failures = Failures()
        for s, prompt_rows in zip(joining, rows, strict=True):
            reason = None
            with failures.of(s.number):
                delta, reason = self._begin(s, prompt_rows)
                self._events.append(delta)
            self._end(s, reason, failures)

    def _begin(
        self, sequence: RunningRequest, rows: TargetOutput
    ) -> tuple[Delta, FinishReason | None]:
        """The first token, from the rows of the prefill."""
        request, slot = sequence.request, sequence.slot
        # It follows a tree that is the prompt's last token alone.
        last = TreeBuilder(request.ids[-1]).build()
        p = TreeDistributions(rows, last, sequence.sampler, sequence.history)
        first = p.draw(ROOT, sequence.noise)
        begun = Prefill(np.array(request.ids, dtype=np.int64), first, rows)
        for drafter in self._drafters.values():
            drafter.begin(slot, begun)
        if request.observer is not None:
            request.observer(begun)
        sequence.state = self.method.policy.start()
        found = sequence.take([first], last_drafted=0)
        sequence.ttft = perf_counter() - sequence.started
        return found

    def _outcomes(
        self,
        live: Sequence[RunningRequest],
        trees: Sequence[TokenTree],
        rows: Sequence[TargetOutput],
        failures: Failures,
    ) -> list[Outcome]:
        """What the verifier keeps of each tree; nothing of a request that has failed."""
        sound = {
            s.number: self._case(s, tree, found)
            for s, tree, found in zip(live, trees, rows, strict=True)
            if s.number not in failures
        }
        judged = each_judged(self.method.verifier.verify, list(sound.values())) if sound else []
        verdicts = dict(zip(sound, judged, strict=True))
        outcomes = []
        for s, tree, found in zip(live, trees, rows, strict=True):
            verdict = verdicts.get(s.number)
            if isinstance(verdict, Exception):
                failures[s.number] = verdict
            if isinstance(verdict, Verdict):
                outcomes.append(_outcome(tree, verdict, found))
            else:
                outcomes.append(Outcome(tree, (), (), found))
        return outcomes

    def _case(self, sequence: RunningRequest, tree: TokenTree, rows: TargetOutput) -> Verification:
        p = TreeDistributions(rows, tree, sequence.sampler, sequence.history)
        q = TreeProposals(self._drafters, sequence.slot, tree)
        return Verification(tree, p, q, sequence.noise)

    def _learn(self, sequence: RunningRequest, outcome: Outcome) -> None:
        for drafter in self._drafters.values():
            drafter.observe(sequence.slot, outcome)
        if sequence.request.observer is not None:
            sequence.request.observer(outcome)
        sequence.state = self.method.policy.learn(sequence.state, outcome)

    def _backlog(self, slot: int) -> int:
        return max((d.backlog(slot) for d in self._drafters.values()), default=0)

    def _forwards(self) -> int:
        return sum(drafter.forwards for drafter in self._drafters.values())

    def _end(
        self, sequence: RunningRequest, reason: FinishReason | None, failures: Failures
    ) -> None:
        """Finish the request if it has failed or there is a reason."""
        error = failures.get(sequence.number)
        if error is not None:
            self._finish(sequence, "error", error)
        elif reason:
            self._finish(sequence, reason)

    def _finish(
        self, sequence: RunningRequest, reason: FinishReason, error: Exception | None = None
    ) -> None:
        del self._active[sequence.number]
        completion = sequence.completion(reason, error)
        logger.debug(
            "request %d: %s after %d tokens", sequence.number, reason, len(completion.tokens)
        )
        self._events.append(Finished(sequence.number, completion))
        self._release(sequence.slot)

    def _release(self, slot: int) -> None:
        """Let the drafters and the target forget a slot, each of them whatever another raises."""
        with ExitStack() as releases:
            releases.callback(self.target.release, slot)
            for drafter in self._drafters.values():
                # A request that failed in its prefill has no index yet.
                releases.enter_context(suppress(KeyError))
                releases.callback(drafter.release, slot)


def _method(given: object) -> Method:
    found = methods.method(given) if isinstance(given, str) else getattr(given, "method", given)
    if not isinstance(found, Method):
        raise DraftwoodError(
            f"a method cannot be {type(given).__name__}: give its name, such as 'auto', or what "
            "draftwood.method or draftwood.auto() returns"
        )
    return found


def _target(given: Any) -> Target:
    if isinstance(given, torch.nn.Module):
        return runner_of(given)
    if not hasattr(given, "info"):
        raise DraftwoodError(
            f"an engine decodes with a model, and this is {type(given).__name__}: give one of "
            "transformers, or use draftwood.Engine.load(NAME)"
        )
    target: Target = given
    return target


def _outcome(tree: TokenTree, verdict: Verdict, rows: TargetOutput) -> Outcome:
    committed = (*(int(tree.tokens[i]) for i in verdict.path), verdict.bonus)
    return Outcome(tree, verdict.path, committed, rows)
