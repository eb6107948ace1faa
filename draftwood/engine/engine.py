"""The loop: draft, verify, commit, for a batch of requests in lockstep.

The engine owns the queue of requests and what belongs to one of them (its tokens, its policy's
state, its random stream, its text); the target owns tensors, the drafters own their indices.
A request's tokens do not depend on the rest of the batch, nor on earlier requests. If drafts are
sampled, and their size depends on costs (``auto`` with ``layout=drawn``) or a drafter remembers
other requests (``goose-sampled:context=memory``), the tokens may; their distribution does not.
"""

import itertools
import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from draftwood import models
from draftwood.engine.arguments import Makes, method_of, target_of
from draftwood.engine.batch import Batch
from draftwood.engine.forking import leader_of
from draftwood.engine.host import ModelHost
from draftwood.engine.isolation import Failures
from draftwood.engine.joining import JoiningRequest, PromptPiece
from draftwood.engine.memory import MemoryLimit, Size, memory_bytes, prefix_bytes
from draftwood.engine.phases import Phases
from draftwood.engine.prefixes import Prefixes
from draftwood.engine.request import (
    Completion,
    Event,
    Finished,
    FinishReason,
    Request,
    admit,
    prepared,
)
from draftwood.engine.request_step import RequestStep
from draftwood.engine.sequence import RunningRequest
from draftwood.errors import DraftwoodError, integer
from draftwood.grammars.constraint import constraint_of
from draftwood.methods.equip import equipped
from draftwood.methods.recipe import Method
from draftwood.models import eos_of
from draftwood.protocols import (
    Host,
    Outcome,
    PooledTarget,
    Prediction,
    ResumableTarget,
    Target,
)
from draftwood.runner.runner import Runner

logger = logging.getLogger(__name__)

_AHEAD = 256
"""New tokens for which a request gets memory when it begins; more comes as it grows."""

_MARGIN = 128
"""Entries that a row of a cache may have beyond what was asked for."""


class Engine:
    """Decodes requests with one method on one target.

    Args:
        target: the model: one of transformers, which is attached, or an attached one.
        method: what drafts, shapes and verifies the trees: its name, e.g. ``"goose:budget=16"``, a
            :class:`draftwood.Method`, or what ``draftwood.goose(budget=16)`` returns.
        tokenizer: needed for prompts that are text, for the text of what is generated, and for
            stop strings.
        max_batch: most requests decoded at once; more wait in a queue.
        memory: most bytes of all keys and values and of recurrent states, or a text such as
            ``"4GB"``; None: no limit. Requests wait until there is room for all tokens that they
            may have. For a moment a cache that grows takes twice as much.
        prefix_cache: most bytes of finished texts whose keys and values are kept, or a text such as
            ``"1GB"``; None or 0: none. A prompt that begins like one of them, or like a running
            request's, in the same namespace, is cached from there on. This memory comes on top.
            Requests with one prompt that begin together cache it once without it as well.
        host: where drafters are built; engines that share one share draft models.

    Attributes:
        method: with the settings that it takes from what is shipped for the model.
        note: a line about these; empty if there are none.

    Raises:
        DraftwoodError: trees cannot be run on the model, there is no such method, a drafter's
            settings do not fit the target, or memory is no number of bytes.
    """

    def __init__(
        self,
        target: Target | PreTrainedModel,
        method: Method | Makes | str = "auto",
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        max_batch: int = 64,
        memory: int | str | None = None,
        prefix_cache: int | str | None = None,
        host: Host | None = None,
    ) -> None:
        max_batch = integer("max_batch", max_batch)
        most_bytes = memory_bytes(memory)
        kept_bytes = prefix_bytes(prefix_cache)
        if max_batch < 1:
            raise DraftwoodError(f"max_batch is {max_batch}: it must be at least 1")
        method = method_of(method)
        self.target = target_of(target)
        self.tokenizer = tokenizer
        self.max_batch = max_batch
        # Read now: the model's generation config may have been changed since it was attached.
        model = self.target.model if isinstance(self.target, Runner) else None
        own = self.target.info.eos if model is None else eos_of(model)
        self._eos = own or eos_of(None, tokenizer)
        host = host or ModelHost(self.target, tokenizer)
        found = equipped(method, self.target.info.fingerprint, lambda: host.vocabulary)
        self.method, self.note = found.method, found.note
        if found.note:
            logger.info("%s", found.note)
        self._phases = Phases(self.target, self.method, host)
        ahead = self.method.policy.budget + 1 + _MARGIN
        pooled = self.target if isinstance(self.target, PooledTarget) else None
        block = 0 if pooled is None else pooled.block
        snapshots = of_rows = 0
        self._prefixes: Prefixes | None = None
        if kept_bytes is not None:
            if not isinstance(self.target, ResumableTarget):
                raise DraftwoodError("this target keeps no prefixes: leave prefix_cache out")
            snapshots = self.target.remembered_bytes
            self._phases.prompts.end_apart = recurrent = snapshots > 0
            needs, info = self._phases.needs, self.target.info
            of_rows = len(needs.taps) * info.hidden_size * info.dtype.itemsize
            self._prefixes = Prefixes(self.target, needs, kept_bytes, recurrent=recurrent)
        of_nodes = (self.method.policy.budget + 1) * self._phases.node_bytes
        of_token = self._phases.token_bytes + of_rows
        sizes = (of_token, self._phases.slot_bytes, of_nodes + snapshots)
        self._memory = MemoryLimit(most_bytes, *sizes, ahead, block)
        if most_bytes is not None:  # what other engines have left behind does not count
            self._phases.trim()
        if self._memory.tokens is not None:
            self._phases.allocate(self._memory.tokens)
        self._numbers = itertools.count()
        self._waiting: deque[RunningRequest] = deque()
        self._active: dict[int, RunningRequest] = {}
        self._joining: dict[int, JoiningRequest] = {}  # those of them whose prompt is not cached
        self._slots: set[int] = set()  # that are open for them
        self._prompt_tokens = self._copied_tokens = 0
        self._full = False  # there was no memory for another slot; a request has to end first
        self._unreported: list[RequestStep] = []  # their events are not made yet
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
        memory: int | str | None = None,
        prefix_cache: int | str | None = None,
    ) -> "Engine":
        """An engine on a model and its tokenizer, loaded by :func:`draftwood.load`.

        Raises:
            DraftwoodError: the model cannot be loaded, or see above.
        """
        loaded = models.load(name, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        return cls(
            loaded.model,
            method,
            loaded.tokenizer,
            max_batch=max_batch,
            memory=memory,
            prefix_cache=prefix_cache,
        )

    def add(self, request: Request) -> int:
        """Queue a request; returns its number.

        Raises:
            DraftwoodError: something is of a wrong type, the prompt is empty, holds an unknown id
                or exceeds the context, a limit, a sampling setting or a stop string cannot be
                honoured, a grammar cannot be compiled, or the request needs more memory than there
                may be.
        """
        request = prepared(request, self.tokenizer, self._eos)
        limit = admit(request, self.target.info, text=self.tokenizer is not None)
        self._memory.check(self._size(len(request.ids), limit))
        constraint = None
        if request.grammar is not None:
            size = self.target.info.vocab_size
            constraint = constraint_of(request.grammar, self.tokenizer, size, request.ends)
        number = next(self._numbers)
        sequence = RunningRequest(number, request, limit, self.tokenizer, constraint)
        self._waiting.append(sequence)
        return sequence.number

    def cancel(self, number: int) -> Finished | None:
        """End a request now and return its end; None if it has ended before.

        A request that a failed step has ended is reported here, and not again by :meth:`step`.
        """
        waiting = next((s for s in self._waiting if s.number == number), None)
        if waiting is not None:
            self._waiting.remove(waiting)
            return Finished(number, waiting.completion("cancelled"))
        self._catch_up()
        if number in self._active:
            self._finish(self._active[number], "cancelled")
        own = [event for event in self._events if event.request_id == number]
        self._events = [event for event in self._events if event.request_id != number]
        return next((event for event in own if isinstance(event, Finished)), None)

    def close(self) -> None:
        """End all requests now, without an event, and give back what they hold of the model.

        ``with Engine(...) as engine:`` does so at its end. An engine that is dropped while requests
        run would keep their keys and values in the model's cache. It can be used on.
        """
        with ExitStack() as stack:
            for slot in self._slots:
                stack.callback(self._release, slot)
            for held in (self._waiting, self._active, self._joining, self._unreported):
                held.clear()
            self._events.clear()
            self._full = False

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs, or a failed step has left events."""
        return bool(self._waiting or self._active or self._events)

    @property
    def running(self) -> int:
        """Number of requests that are decoded; any thread may ask."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Number of requests in the queue; any thread may ask."""
        return len(self._waiting)

    @property
    def cache_usage(self) -> float:
        """Share of the memory of keys and values that the running requests' tokens fill.

        Of ``memory``, or without such a limit of ``max_batch`` whole contexts.
        """
        tokens = sum(len(sequence.history) for sequence in self._active.values())
        return self._memory.share(tokens, self.max_batch * self.target.info.context_limit)

    @property
    def price(self) -> float | None:
        """Value, in tokens, from which on one more drafted node paid in recent steps.

        None for a method that does not weigh costs. Any thread may ask.
        """
        return self._phases.price

    @property
    def prefix_tokens(self) -> tuple[int, int]:
        """Tokens of all prompts that were cached, and those of them that were not computed.

        These come from the prefix cache, or from a request that ran or began beside.
        """
        return self._prompt_tokens, self._copied_tokens

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the finished texts that the prefix cache keeps. Any thread may ask."""
        return 0 if self._prefixes is None else self._prefixes.bytes

    def stream(self, requests: Sequence[Request]) -> Generator[Event, None, None]:
        """Decode the requests, numbered in order, and yield events as they happen.

        Closing the iterator cancels what is still running.
        """
        if isinstance(requests, (Request, str)) or not isinstance(requests, Iterable):
            raise DraftwoodError("an engine takes a list of requests: write [request]")
        numbers: list[int] = []
        found: deque[Event] = deque()
        try:
            numbers += map(self.add, requests)
            while self.busy:
                found.extend(self.step())
                while found:
                    yield found.popleft()
        finally:
            self._events[:0] = [event for event in found if event.request_id not in numbers]
            for number in numbers:
                self.cancel(number)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests to their ends, in order.

        The completion of a failed request holds its error; :meth:`draftwood.Completion.checked`
        raises it. Requests added before are decoded, too; the next :meth:`step` has their events.
        """
        others = {s.number for s in self._waiting} | {*self._active}
        others |= {event.request_id for event in self._events}
        events: list[Event] = []
        try:
            events.extend(self.stream(requests))
        finally:
            self._events[:0] = [e for e in events if e.request_id in others]
        done = [e for e in events if isinstance(e, Finished) and e.request_id not in others]
        return [e.completion for e in sorted(done, key=lambda e: e.request_id)]

    def step(self) -> list[Event]:
        """Admit waiting requests, then draft, verify and commit once for all running ones.

        While requests run, prompts are cached in pieces, so that a long one does not stop them. If
        a forward fails that has pieces in it, it is repeated without them, and only the requests
        whose prompts these are end.

        A request whose own work raises an exception (a logits processor, a stopping criterion, an
        observer, its text, logits that are not numbers) ends with reason ``"error"``; the others go
        on with the tokens that they would have had without it.

        On another device than the CPU, the events of a request that goes on come with the next
        call: they are made while the device runs the next forward.

        Raises:
            Exception: what was done for all at once failed, such as a forward of the model. The
                requests that ran end with reason ``"error"`` and the engine can be used on; those
                that wait stay. The events of this step, those ends included, come with the next
                call.
        """
        with self._ended_on_failure():
            if self._prefixes:
                self._prefixes.next_step()
            self._admit()
            some_run = len(self._active) > len(self._joining)
            pieces = self._pieces()
            # Nobody waits for the step that first tokens would wait for.
            live = self._running() if some_run or not self._events else ()
            if live:
                phases = self._phases
                batch = Batch(live, phases.draft_forwards, pieces)
                drafted = phases.draft(batch)
                trees = [found.tree for found in drafted]
                submitted = phases.submit(batch, trees)
                self._report(batch.failures)
                rows = phases.rows(batch, submitted)
                outcomes = phases.verify(batch, trees, rows, submitted.early)
                phases.commit(batch, outcomes)
                predictions = phases.learn(batch, drafted, outcomes)
                self._take(batch, outcomes, predictions)
                if batch.unread:
                    self._refuse(pieces, batch.unread)
                elif pieces:
                    self._begin_cached()
        events, self._events = self._events, []
        return events

    @contextmanager
    def _ended_on_failure(self) -> Iterator[None]:
        """End the running requests if the work for all at once raises an exception."""
        try:
            yield
        except BaseException as error:
            # After an interrupt as well, caches and texts may differ.
            own = error if isinstance(error, Exception) else DraftwoodError("it was interrupted")
            with suppress(Exception):
                self._catch_up()
            for sequence in list(self._active.values()):
                with suppress(Exception):  # what failed may fail again; it is what is raised
                    self._finish(sequence, "error", own)
            for slot in list(self._slots):  # of a request that an interrupt kept from its place
                with suppress(Exception):
                    self._release(slot)
            if self._prefixes:  # there may be too little memory for them
                self._prefixes.clear()
            raise

    def _take(
        self,
        batch: Batch,
        outcomes: Sequence[Outcome],
        predictions: Sequence[Prediction | None],
    ) -> None:
        """Append the tokens and end the requests that are done."""
        times, calls = batch.watch.times, self._phases.draft_forwards - batch.forwards
        beside = self._phases.beside
        for s, outcome, prediction in zip(batch.live, outcomes, predictions, strict=True):
            reason = None
            if batch.sound(s):
                with batch.failures.of(s.number):
                    taken = s.take(outcome.committed, outcome.path, outcome.rows.logits)
                    reason = taken.reason
                    behind = len(outcome.committed) - len(taken.tokens)
                    if behind:
                        self._phases.cut(s.slot, behind)
                    step = RequestStep(s, taken, outcome, prediction, times, len(batch.live), calls)
                    if reason or not beside:
                        self._events += step.events()
                    else:
                        self._unreported.append(step)
            self._end(s, reason, batch.failures)

    def _report(self, failures: Failures) -> None:
        """Make the events of the step before."""
        steps, self._unreported = self._unreported, []
        for step in steps:
            with failures.of(step.sequence.number):
                self._events += step.events()

    def _catch_up(self) -> None:
        """Make the events that the next step would make, while none runs."""
        failures = Failures()
        self._report(failures)
        for number in failures:
            self._end(self._active[number], None, failures)

    def _admit(self) -> None:
        """Give as many waiting requests a slot as there is room for."""
        most = self.method.policy.budget + 1
        resumable, prefixes = self._phases.prompts.resumable, self._prefixes
        for s in [*self._waiting]:
            if len(self._active) >= self.max_batch:
                break
            joining = self._joining.values()
            leader = None if resumable is None else leader_of(s, joining, resumable)
            if not leader and prefixes and prefixes.arrives(s, joining, self._running()):
                continue  # by choice: those behind it may have more to gain
            if not self._fits(s):
                break
            joined = self._joined(s, leader, len(s.request.ids) + min(s.limit, _AHEAD) + most)
            if joined is None:
                break
            # No call comes between these two, so that no interrupt finds it in both or in neither.
            self._active[s.number] = s
            self._waiting.remove(s)
            s.begin()
            self._joining[s.number] = joined

    def _joined(
        self, sequence: RunningRequest, leader: JoiningRequest | None, tokens: int
    ) -> JoiningRequest | None:
        """A request with a slot, and with what can be copied of its prompt; None without memory."""
        if not self._opened(sequence, tokens):
            return None
        if self._prefixes is None:
            return JoiningRequest(sequence, leader=leader)
        try:
            if leader is None:
                return self._prefixes.begin(sequence, self._running())
            self._prefixes.watch(sequence)
            return JoiningRequest(sequence, leader=leader)
        except DraftwoodError:
            raise
        except Exception as error:  # noqa: BLE001 - what a device raises without memory
            logger.warning("request %d computes its whole prompt: %s", sequence.number, error)
            self._prefixes.clear()
            self._release(sequence.slot)
            if not self._opened(sequence, tokens):
                return None
            self._prefixes.watch(sequence)
            return JoiningRequest(sequence)

    def _opened(self, sequence: RunningRequest, tokens: int) -> bool:
        """Give a request a slot; False if there is no memory for it now.

        It waits for a running one to end. Without any it could wait for ever, and ends here.
        """
        if self._full:
            return False
        try:
            sequence.slot = self.target.open(tokens)
            self._slots.add(sequence.slot)
        except DraftwoodError:
            raise  # a model that was detached, for one
        except Exception as error:  # noqa: BLE001 - what a device raises without memory
            logger.warning("request %d gets no memory: %s", sequence.number, error)
            self._full = bool(self._active)
            if not self._full:
                self._phases.trim()
                if self._prefixes and self._prefixes.clear():
                    return self._opened(sequence, tokens)
                self._waiting.remove(sequence)
                self._events.append(Finished(sequence.number, sequence.completion("error", error)))
            return False
        return True

    def _running(self) -> list[RunningRequest]:
        """The requests whose prompts are cached."""
        return [s for s in self._active.values() if s.number not in self._joining]

    def _pieces(self) -> list[PromptPiece]:
        """The pieces of prompts that the next step's forward caches as well.

        Other pieces are cached now.
        """
        if not self._joining:
            return []
        joining, prompts = [*self._joining.values()], self._phases.prompts
        running = len(self._active) - len(joining)
        if running and (pieces := prompts.within(joining, running)):
            return pieces
        pieces = prompts.next(joining, alone=not running)
        try:
            prompts.cache(pieces)
        except Exception as error:
            if not running:
                raise
            self._refuse(pieces, error)
        else:
            self._begin_cached()
        return []

    def _refuse(self, pieces: Sequence[PromptPiece], error: Exception) -> None:
        """End the requests whose prompts could not be cached, and those that follow them."""
        logger.error("prompts that join have failed", exc_info=error)
        failed = [piece.request for piece in pieces]
        for joined in [*self._joining.values()]:
            if joined in failed or joined.leader in failed:
                self._finish(joined.sequence, "error", error)

    def _begin_cached(self) -> None:
        """Draw the first tokens of the requests whose prompts are cached."""
        failures = Failures()
        for joined in self._phases.prompts.cached([*self._joining.values()]):
            s, reason = joined.sequence, None
            del self._joining[s.number]
            self._prompt_tokens += len(s.request.ids)
            self._copied_tokens += joined.copied
            s.cached_tokens = joined.copied
            with failures.of(s.number):
                delta, reason = self._phases.begin(joined)
                self._events.append(delta)
            self._end(s, reason, failures)

    def _size(self, prompt: int, new: int) -> Size:
        """The memory of a request of so many tokens at most."""
        kept = self.target.info.recomputed_above
        deepest = self.method.policy.budget + 1
        twice = kept is not None and prompt <= kept < prompt + new + deepest
        return Size(prompt, new, 2 if twice else 1)

    def _fits(self, sequence: RunningRequest) -> bool:
        """Whether there is memory for a request beside those that run."""
        own, *running = (
            self._size(len(each.request.ids), each.limit)
            for each in (sequence, *self._active.values())
        )
        if running:
            return self._memory.admits(running, own)
        if self._memory.wastes(own) or not self._memory.admits((), own):
            self._phases.trim()
            self._memory.reset()
        return self._memory.admits((), own)

    def _end(
        self, sequence: RunningRequest, reason: FinishReason | None, failures: Failures
    ) -> None:
        """Finish the request if it has failed or there is a reason."""
        error = failures.get(sequence.number)
        reason = reason if error is None else "error"
        if reason:
            self._finish(sequence, reason, error)

    def _finish(
        self, sequence: RunningRequest, reason: FinishReason, error: Exception | None = None
    ) -> None:
        with ExitStack() as stack:
            stack.callback(self._release, sequence.slot)
            del self._active[sequence.number]
            self._joining.pop(sequence.number, None)
            self._full = False
            completion = sequence.completion(reason, error)
            logger.debug(
                "request %d: %s after %d tokens", sequence.number, reason, len(completion.tokens)
            )
            self._events.append(Finished(sequence.number, completion))
            if self._prefixes and reason != "error":
                try:
                    self._prefixes.keep(sequence)
                except BaseException as failed:
                    self._prefixes.clear()
                    if not isinstance(failed, Exception):
                        raise
                    # Such as too little memory.
                    logger.warning("a text is not kept for later prompts: %s", failed)

    def _release(self, slot: int) -> None:
        """Give an open slot back."""
        if slot in self._slots:
            try:
                self._phases.release(slot)
            finally:
                self._slots.discard(slot)
