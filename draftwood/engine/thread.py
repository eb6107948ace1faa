"""A thread that owns an engine, so that many threads or an event loop can share it.

Everything reaches the engine through one inbox, between two steps. What the engine reports goes to
the callback of its request, on the engine's thread.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeAlias

import torch

from draftwood.engine.engine import Engine
from draftwood.engine.request import Event, Finished, Request, Stepped
from draftwood.errors import DraftwoodError
from draftwood.protocols import shared
from draftwood.runner.cpu.workers import end_workers

logger = logging.getLogger(__name__)

_MOST_FAILURES = 8
"""Steps that may fail, with none between them that does not, before the thread gives up."""


class Busy(DraftwoodError):  # noqa: N818 - a kind of DraftwoodError
    """There are as many requests as may be held; a later try may succeed."""


class Closing(DraftwoodError):  # noqa: N818
    """No new requests are taken, as the engine is about to stop."""


@dataclass(frozen=True)
class Queued:
    """The engine has taken a request."""


@dataclass(frozen=True)
class Failed:
    """A request ends without a completion: it was refused, or its engine has stopped."""

    error: Exception


Report: TypeAlias = Event | Queued | Failed
"""What a request's callback gets. ``Finished`` and ``Failed`` are the last ones."""

Callback: TypeAlias = Callable[[int, Report], None]


@dataclass(frozen=True)
class EngineStats:
    """The engine as its last step left it.

    Attributes:
        running: requests that are decoded.
        waiting: requests that wait for them, those in the inbox included.
        cache_usage: share of the memory of keys and values in use.
        price: value, in tokens, from which on one more drafted node paid in recent steps; None:
            unknown.
        prefix_queries: prompt tokens of the requests whose prompts are cached.
        prefix_hits: those of them that were not computed.
        prefix_bytes: bytes of the finished texts that are kept.
        steps: steps so far.
        failures: steps that failed as a whole.
    """

    running: int
    waiting: int
    cache_usage: float
    price: float | None
    prefix_queries: int
    prefix_hits: int
    prefix_bytes: int
    steps: int
    failures: int


@dataclass(frozen=True, eq=False)
class _Held:
    """A request that has not ended: its place among those submitted with it, and who is told."""

    index: int
    callback: Callback

    def tell(self, report: Report) -> None:
        try:
            self.callback(self.index, report)
        except Exception as error:  # noqa: BLE001 - foreign code, such as a loop that is closed
            logger.warning("the callback of a request failed: %s", error)


class EngineThread:
    """Runs an engine on a thread of its own, from now until :meth:`close`.

    The thread that makes it had better not compute with torch meanwhile
    (:mod:`draftwood.runner.cpu.workers`).

    Args:
        engine: nobody else may use it from now on.
        most: requests that may be held at once, running ones included; None: no limit.
        watch: gets all events of the engine, on its thread.

    Raises:
        DraftwoodError: the engine's model is divided among processes.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        most: int | None = None,
        watch: Callable[[Event], None] | None = None,
    ) -> None:
        if shared(engine.target) is not None:
            raise DraftwoodError(
                "this model is divided among processes, which have to take the same requests at "
                "the same step; a thread takes them when they arrive: use Engine in each process"
            )
        self.engine = engine
        self.most = most
        self._watch = watch
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}  # by ticket
        self._tickets = itertools.count()
        self._closing = False
        self._dead: Exception | None = None
        self._numbers: dict[int, int] = {}  # the engine's, by ticket; of this thread alone
        self._owners: dict[int, int] = {}  # tickets by the engine's number
        self._steps = self._failures = self._failed_in_a_row = 0
        self._cache_usage = 0.0
        # This thread has loaded the model, and leaves its cores to the other one.
        end_workers()
        self._thread = threading.Thread(target=self._run, name="draftwood-engine", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[Request], callback: Callback) -> tuple[int, ...]:
        """Hand over requests; returns a ticket for each.

        Args:
            requests: all of them are taken, or none.
            callback: called with the place of a request among these and what is reported of it:
                ``Queued`` first, ``Finished`` last; or ``Failed`` alone if it cannot be decoded.

        Raises:
            Busy: too many requests are held.
            Closing: the engine stops, or its thread has died.
        """
        with self._lock:
            self.check_room(len(requests))
            tickets = tuple(itertools.islice(self._tickets, len(requests)))
            for index, ticket in enumerate(tickets):
                self._held[ticket] = _Held(index, callback)
        # In one order, so that no step comes between them: they may share a prompt.
        self._inbox.put(partial(self._add_all, tickets, requests))
        return tickets

    def check_room(self, count: int, beside: int = 0) -> None:
        """Refuse so many requests if :meth:`submit` would do so now.

        Args:
            count: of the requests.
            beside: requests that will be handed over before them.

        Raises:
            Busy: see :meth:`submit`.
            Closing: likewise.
        """
        if self._dead is not None:
            raise Closing(f"the engine has stopped: {self._dead}")
        if self._closing:
            raise Closing("the server is stopping: it takes no new requests")
        held = len(self._held) + beside
        if self.most is not None and held + count > self.most:
            raise Busy(
                f"{held} requests are running or waiting, and at most {self.most} may be: try "
                "again later"
            )

    def cancel(self, ticket: int) -> None:
        """End a request soon, with reason ``"cancelled"``; nothing happens if it has ended."""
        self._inbox.put(partial(self._cancel, ticket))

    def drain(self) -> None:
        """Take no new requests; those that are held go on."""
        with self._lock:
            self._closing = True

    def close(self, timeout: float | None = 10.0) -> None:
        """Stop after the current step; every request that is held then fails."""
        self.drain()
        self._inbox.put(None)
        self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether requests are decoded."""
        return self._dead is None and self._thread.is_alive()

    @property
    def draining(self) -> bool:
        """Whether new requests are refused."""
        return self._closing

    @property
    def held(self) -> int:
        """Number of requests that have not ended."""
        return len(self._held)

    def stats(self) -> EngineStats:
        """Figures of the engine; any thread may ask."""
        running = self.engine.running
        queries, hits = self.engine.prefix_tokens
        return EngineStats(
            running=running,
            waiting=max(0, len(self._held) - running),
            cache_usage=self._cache_usage,
            price=self.engine.price,
            prefix_queries=queries,
            prefix_hits=hits,
            prefix_bytes=self.engine.prefix_bytes,
            steps=self._steps,
            failures=self._failures,
        )

    def _run(self) -> None:
        error: Exception = Closing("the server is stopping: the request was ended")
        try:
            device = self.engine.target.info.device
            if device.type == "cuda" and device.index is not None:
                torch.cuda.set_device(device)  # of this thread
            # The kernels use this thread's OpenMP, to which torch gives its number of threads only
            # when it needs it.
            torch.get_num_threads()
            while self._receive():
                if self.engine.busy:
                    self._step()
        except Exception as found:
            logger.exception("the engine's thread has failed")
            self._dead = found
            error = Closing(f"the engine has stopped: {found}")
            error.__cause__ = found
        finally:
            with self._lock:
                self._dead = self._dead or error
                held, self._held = list(self._held.values()), {}
            try:
                self.engine.close()
            except Exception:
                logger.exception("an engine could not be closed")
            for each in held:
                each.tell(Failed(error))

    def _receive(self) -> bool:
        """Do what the inbox asks for; wait for it if there is nothing to decode."""
        try:
            while True:
                order = self._inbox.get(block=not self.engine.busy)
                if order is None:
                    return False
                order()
        except Empty:
            return True

    def _step(self) -> None:
        self._steps += 1
        try:
            events = self.engine.step()
        except Exception as error:
            logger.exception("a step failed; the requests that ran end with its error")
            self._failures += 1
            # Another request may need less memory.
            self._failed_in_a_row += not isinstance(error, torch.OutOfMemoryError)
            if self._failed_in_a_row >= _MOST_FAILURES:
                raise
            return
        self._cache_usage = self.engine.cache_usage
        for event in events:
            if _succeeded(event):
                self._failed_in_a_row = 0
            self._report(event)

    def _add_all(self, tickets: Sequence[int], requests: Sequence[Request]) -> None:
        for ticket, request in zip(tickets, requests, strict=True):
            self._add(ticket, request)

    def _add(self, ticket: int, request: Request) -> None:
        held = self._held.get(ticket)
        if held is None:
            return
        try:
            number = self.engine.add(request)
        except Exception as error:  # noqa: BLE001 - it is the request's
            self._forget(ticket)
            held.tell(Failed(error))
            return
        self._numbers[ticket], self._owners[number] = number, ticket
        held.tell(Queued())

    def _cancel(self, ticket: int) -> None:
        number = self._numbers.get(ticket)
        if number is not None:
            try:
                finished = self.engine.cancel(number)
            except Exception as error:
                logger.exception("a request could not be ended as it should")
                self._end(number, Failed(error))
                return
            self._cache_usage = self.engine.cache_usage
            if finished is not None:
                self._report(finished)

    def _report(self, event: Event) -> None:
        self._show(event)
        if isinstance(event, Finished):
            self._end(event.request_id, event)
            return
        ticket = self._owners.get(event.request_id)
        held = None if ticket is None else self._held.get(ticket)
        if held is not None:
            held.tell(event)

    def _end(self, number: int, report: Finished | Failed) -> None:
        """Tell a request's last report, and forget it; nothing if it has ended before."""
        ticket = self._owners.pop(number, None)
        if ticket is None:
            return
        del self._numbers[ticket]
        held = self._held.get(ticket)
        self._forget(ticket)
        if held is not None:
            held.tell(report)

    def _show(self, event: Event) -> None:
        try:
            if self._watch is not None:
                self._watch(event)
        except Exception as error:  # noqa: BLE001 - foreign code
            logger.warning("what watches the engine failed: %s", error)

    def _forget(self, ticket: int) -> None:
        with self._lock:
            self._held.pop(ticket, None)


def _succeeded(event: Event) -> bool:
    """Whether an event is of a step that did not fail; a request of one token has no other."""
    if isinstance(event, Finished):
        return event.completion.reason not in ("error", "cancelled")
    return isinstance(event, Stepped)
