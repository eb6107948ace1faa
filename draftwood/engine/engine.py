"""The loop: draft, verify, commit, for a batch of requests in lockstep.

The engine owns the queue of requests and what belongs to one of them (its tokens, its policy's
state, its random stream, its text); the target owns tensors, the drafters own their indices.
A request's tokens do not depend on the rest of the batch. If the policy sizes sampled drafts by
cost (``auto`` with ``layout=drawn``), the tokens may; their distribution does not.
"""

import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import reduce
from operator import or_
from os import PathLike
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from draftwood import methods, models
from draftwood.engine.batch import Batch
from draftwood.engine.host import ModelHost
from draftwood.engine.isolation import Failures, each_verified
from draftwood.engine.lockstep import Drafted, draft, free
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
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError, integer
from draftwood.methods.recipe import Method
from draftwood.models import eos_of
from draftwood.protocols import (
    Built,
    Host,
    Needs,
    Outcome,
    Prediction,
    Prefill,
    StepReport,
    Target,
    TargetOutput,
    Verdict,
    Verification,
)
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
        self._tuner = method.policy.tuner(host, built)
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
        with self._cancelled_on_failure():
            self._admit()
            if self._active:
                batch = Batch(list(self._active.values()), self._forwards())
                drafted = self._draft(batch)
                trees = [found.tree for found in drafted]
                rows = self._score(batch, trees)
                outcomes = self._verify(batch, trees, rows)
                self._commit(batch, outcomes)
                predictions = self._learn(batch, drafted, outcomes)
                self._report(batch, outcomes, predictions)
        events, self._events = self._events, []
        return events

    @contextmanager
    def _cancelled_on_failure(self) -> Iterator[None]:
        """End the running requests if the work for all at once raises an exception."""
        try:
            yield
        except Exception:
            for sequence in list(self._active.values()):
                with suppress(Exception):  # what failed may fail again; it is what is raised
                    self._finish(sequence, "cancelled")
            raise

    def _draft(self, batch: Batch) -> list[Drafted]:
        """Grow a tree for each request, by the tuner's forecasts if the policy has a tuner."""
        policy, live, tuner = self.method.policy, batch.live, self._tuner
        forecasts: Sequence[Any] = [None] * len(live)
        if tuner is not None:
            loads = [s.load(self._backlog(s.slot)) for s in live]
            forecasts = tuner.begin(loads, queued=bool(self._waiting))
        growths = [s.growth(policy.budget, f) for s, f in zip(live, forecasts, strict=True)]
        states = [s.state for s in live]
        price = free if tuner is None else tuner.price
        drafted = draft(policy, self._drafters, batch.slots, growths, states, price)
        for s, found in zip(live, drafted, strict=True):
            if found.error is not None:
                batch.failures[s.number] = found.error
        batch.watch.lap("draft")
        return drafted

    def _score(self, batch: Batch, trees: Sequence[TokenTree]) -> list[TargetOutput]:
        """Run the target's forward over all trees."""
        rows = self.target.forward(batch.slots, trees, self._needs)
        batch.watch.lap("target")
        return rows

    def _verify(
        self, batch: Batch, trees: Sequence[TokenTree], rows: Sequence[TargetOutput]
    ) -> list[Outcome]:
        """The accepted path of each tree; an empty one for a request that has failed."""
        cases = {
            s.number: self._case(s, tree, found)
            for s, tree, found in zip(batch.live, trees, rows, strict=True)
            if batch.sound(s)
        }
        verify = self.method.verifier.verify
        verified = each_verified(verify, list(cases.values())) if cases else []
        verdicts = dict(zip(cases, verified, strict=True))
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

    def _commit(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        """Keep the accepted paths in the target's cache."""
        self.target.commit(batch.slots, [outcome.path for outcome in outcomes])
        batch.watch.lap("commit")

    def _learn(
        self, batch: Batch, drafted: Sequence[Drafted], outcomes: Sequence[Outcome]
    ) -> list[Prediction | None]:
        """Hand the outcomes to the drafters, the observer, the policy and the tuner."""
        for s, outcome in zip(batch.live, outcomes, strict=True):
            if batch.sound(s):
                with batch.failures.of(s.number):
                    for drafter in self._drafters.values():
                        drafter.observe(s.slot, outcome)
                    if s.request.observer is not None:
                        s.request.observer(outcome)
                    s.state = self.method.policy.learn(s.state, outcome)
        batch.watch.lap("learn")
        if self._tuner is None:
            return [None] * len(outcomes)
        bids = [
            found.bid if batch.sound(s) else None
            for s, found in zip(batch.live, drafted, strict=True)
        ]
        predictions = self._tuner.observe(StepReport(bids, outcomes, batch.watch.times))
        batch.watch.lap("learn")
        return predictions

    def _report(
        self,
        batch: Batch,
        outcomes: Sequence[Outcome],
        predictions: Sequence[Prediction | None],
    ) -> None:
        """Append the tokens, make the step's events, and end the requests that are done."""
        times, calls = batch.watch.times, self._forwards() - batch.forwards
        for s, outcome, prediction in zip(batch.live, outcomes, predictions, strict=True):
            reason = None
            if batch.sound(s):
                with batch.failures.of(s.number):
                    delta, reason = s.take(outcome.committed, len(outcome.path))
                    stats = StepStats(
                        tree=outcome.tree,
                        path=outcome.path,
                        committed=len(delta.tokens),
                        times=times,
                        batch=len(batch.live),
                        draft_calls=calls,
                        prediction=prediction,
                    )
                    s.tally.add(stats)
                    self._events += [delta, Stepped(s.number, stats)]
            self._end(s, reason, batch.failures)

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

    def _case(self, sequence: RunningRequest, tree: TokenTree, rows: TargetOutput) -> Verification:
        p = TreeDistributions(rows, tree, sequence.sampler, sequence.history)
        q = TreeProposals(self._drafters, sequence.slot, tree)
        return Verification(tree, p, q, sequence.noise)

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
