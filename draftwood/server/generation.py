"""Choices that are decoded together: their events on the event loop, and their end."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from time import perf_counter

from draftwood.engine.request import Completion, Delta, Finished, Request, Stepped
from draftwood.engine.thread import Closing, EngineThread, Failed, Queued, Report
from draftwood.server.metrics import ServerMetrics


class Generation:
    """All choices of one response.

    Args:
        thread: decodes them.
        requests: one for each choice.
        metrics: is told of first tokens and ends.
        arrived: when the client's request came, by ``perf_counter``.

    Raises:
        Busy: see :meth:`EngineThread.submit`.
        Closing: likewise.
    """

    def __init__(
        self,
        thread: EngineThread,
        requests: Sequence[Request],
        metrics: ServerMetrics,
        arrived: float,
    ) -> None:
        self._thread = thread
        self._metrics = metrics
        self._arrived = arrived
        self._prompts = [len(request.ids) for request in requests]
        self._open = set(range(len(requests)))
        self._begun: set[int] = set()
        self._reports: asyncio.Queue[tuple[int, Report]] = asyncio.Queue()
        self._early: deque[tuple[int, Report]] = deque()  # of choices that begin before others
        self._loop = asyncio.get_running_loop()
        self._tickets = thread.submit(requests, self._put)

    def _put(self, index: int, report: Report) -> None:
        if isinstance(report, Stepped):  # the metrics have counted it
            return
        self._loop.call_soon_threadsafe(self._reports.put_nowait, (index, report))

    async def accepted(self) -> None:
        """Wait until the engine has taken all choices.

        Raises:
            Exception: it refuses one of them.
        """
        waits = len(self._tickets)
        while waits:
            index, report = await self._reports.get()
            if isinstance(report, Failed):
                # None of the choices has begun, and so none counts as ended.
                for ticket in self._tickets:
                    self._thread.cancel(ticket)
                self._open.clear()
                raise report.error
            if isinstance(report, Queued):
                waits -= 1
            else:
                self._early.append((index, report))

    async def events(self) -> AsyncIterator[tuple[int, Delta | Completion]]:
        """New tokens of the choices, and their completions, with the choice's number.

        Raises:
            Exception: of a choice that failed.
        """
        while self._open:
            early = self._early
            index, report = early.popleft() if early else await self._reports.get()
            if isinstance(report, Failed):
                self._open.discard(index)
                self._metrics.ended("error", perf_counter() - self._arrived)
                raise report.error
            if isinstance(report, Delta):
                self._count_first(index)
                yield index, report
            elif isinstance(report, Finished):
                self._open.discard(index)
                yield index, self._ended(report.completion)

    def close(self) -> None:
        """Cancel the choices that have not ended."""
        for index in self._open:
            self._thread.cancel(self._tickets[index])
            self._metrics.ended("abort", perf_counter() - self._arrived)
        self._open.clear()

    def _count_first(self, index: int) -> None:
        if index not in self._begun:
            self._begun.add(index)
            self._metrics.begun(self._prompts[index], perf_counter() - self._arrived)

    def _ended(self, completion: Completion) -> Completion:
        reason = {"eos": "stop", "context": "length", "cancelled": "abort"}
        name = reason.get(completion.reason, completion.reason)
        self._metrics.ended(name, perf_counter() - self._arrived)
        if completion.reason == "cancelled":
            raise Closing("the server is stopping: the request was ended")
        return completion.checked()
