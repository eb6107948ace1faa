"""An engine on a thread of its own: many callers, failures, limits, and its end."""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Delta, Event, Finished, Request
from draftwood.engine.thread import Busy, Closing, EngineThread, Failed, Queued, Report
from draftwood.kernels.functions import _TORCH, kernels
from draftwood.methods import method
from draftwood.tree import TokenTree
from tests.factories.markov_target import FakeHost, MarkovTarget

PROMPT = (1, 5, 2, 7, 1, 5, 2, 7, 1)


class Gated(MarkovTarget):
    """Its forwards wait for the gate, and fail on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.error: Exception | None = None
        self.errors: list[Exception] = []
        """Each of them fails one forward."""

    def forward(self, slots: Any, trees: Sequence[TokenTree], *rest: Any, **named: Any) -> Any:
        self.reached.set()
        assert self.gate.wait(20)
        error = self.errors.pop() if self.errors else self.error
        if error is not None:
            raise error
        return super().forward(slots, trees, *rest, **named)


class Caller:
    """Collects what is reported of some requests."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, Report]] = []
        self._news = threading.Condition()

    def __call__(self, index: int, report: Report) -> None:
        with self._news:
            self.reports.append((index, report))
            self._news.notify_all()

    def wait(self, enough: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(enough, 20), self.reports

    def ends(self, count: int = 1) -> list[Completion | Exception]:
        """How the requests have ended, in their order."""

        def found() -> dict[int, Completion | Exception]:
            return {
                index: report.completion if isinstance(report, Finished) else report.error
                for index, report in self.reports
                if isinstance(report, Finished | Failed)
            }

        self.wait(lambda: len(found()) == count)
        return [each for _, each in sorted(found().items())]

    def completion(self) -> Completion:
        [end] = self.ends()
        assert isinstance(end, Completion)
        return end

    def failure(self) -> Exception:
        [end] = self.ends()
        assert isinstance(end, Exception)
        return end


def thread_of(target: MarkovTarget, *, max_batch: int = 4, **named: Any) -> EngineThread:
    engine = Engine(target, method("goose"), max_batch=max_batch, host=FakeHost(target.info))
    return EngineThread(engine, **named)


@pytest.fixture
def target() -> Gated:
    return Gated()


def test_requests_of_many_threads(target: Gated) -> None:
    thread = thread_of(target)
    callers = [Caller() for _ in range(12)]

    def submit(number: int) -> None:
        thread.submit([Request(PROMPT[: 3 + number % 6], 15)], callers[number])

    others = [threading.Thread(target=submit, args=(i,)) for i in range(len(callers))]
    for each in others:
        each.start()
    for number, caller in enumerate(callers):
        found = caller.completion()
        assert found.tokens == target.greedy(PROMPT[: 3 + number % 6], 15)
        first, *middle, last = [report for _, report in caller.reports]
        assert isinstance(first, Queued)
        assert isinstance(last, Finished)
        told = [token for each in middle if isinstance(each, Delta) for token in each.tokens]
        assert tuple(told) == found.tokens
        assert 0 <= found.queued < found.ttft < found.seconds
    thread.close()
    assert not thread.alive
    assert thread.held == 0
    assert thread.stats().steps > 0


def test_several_requests_are_taken_together_or_not_at_all(target: Gated) -> None:
    thread = thread_of(target, most=3)
    target.gate.clear()
    first, second, third = Caller(), Caller(), Caller()
    tickets = thread.submit([Request(PROMPT, 9), Request(PROMPT[:4], 9)], first)
    with pytest.raises(Busy, match="2 requests are running or waiting, and at most 3"):
        thread.submit([Request(PROMPT, 9)] * 2, second)
    assert not second.reports
    thread.submit([Request(PROMPT[:5], 9)], third)
    target.gate.set()
    assert len(set(tickets)) == 2
    ends = first.ends(2)
    assert [end.tokens for end in ends if isinstance(end, Completion)] == [
        target.greedy(PROMPT, 9),
        target.greedy(PROMPT[:4], 9),
    ]
    third.completion()
    thread.submit([Request(PROMPT, 9)], second)
    second.completion()
    thread.close()


def test_a_request_that_cannot_be_decoded_fails_alone(target: Gated) -> None:
    thread = thread_of(target)
    bad, good = Caller(), Caller()
    thread.submit([Request((), 9)], bad)
    thread.submit([Request(PROMPT, 9)], good)
    assert "the prompt is empty" in str(bad.failure())
    assert good.completion().tokens == target.greedy(PROMPT, 9)
    assert thread.held == 0
    thread.close()


def test_a_cancelled_request_ends_and_others_go_on(target: Gated) -> None:
    thread = thread_of(target, max_batch=2)
    running, waiting, other = Caller(), Caller(), Caller()
    target.gate.clear()
    [first] = thread.submit([Request(PROMPT, 400)], running)
    thread.submit([Request(PROMPT, 30)], other)
    [second] = thread.submit([Request(PROMPT[:4], 30)], waiting)
    thread.cancel(first)
    thread.cancel(second)
    thread.cancel(second)
    target.gate.set()
    assert running.completion().reason == waiting.completion().reason == "cancelled"
    assert other.completion().tokens == target.greedy(PROMPT, 30)
    thread.close()
    assert not target.cached


def test_a_failed_step_ends_what_ran_and_the_rest_goes_on(target: Gated) -> None:
    thread = thread_of(target, max_batch=1)
    bad, good = Caller(), Caller()
    target.errors = [RuntimeError("out of memory")]
    target.gate.clear()
    thread.submit([Request(PROMPT, 30)], bad)
    thread.submit([Request(PROMPT[:4], 30)], good)
    target.gate.set()
    found = bad.completion()
    assert found.reason == "error"
    assert "out of memory" in str(found.error)
    left = good.completion()
    assert left.reason == "length"
    assert left.tokens == target.greedy(PROMPT[:4], 30)
    late = Caller()
    thread.submit([Request(PROMPT, 30)], late)
    assert late.completion().tokens == target.greedy(PROMPT, 30)
    assert thread.alive
    assert thread.stats().failures == 1
    thread.close()


def test_steps_that_always_fail_end_the_thread(target: Gated) -> None:
    thread = thread_of(target)
    target.error = RuntimeError("a device is lost")
    for _ in range(8):
        caller = Caller()
        thread.submit([Request(PROMPT, 9)], caller)
        caller.ends()
    end = time.monotonic() + 20
    while thread.alive:
        assert time.monotonic() < end
        time.sleep(0.01)
    with pytest.raises(Closing, match="a device is lost"):
        thread.submit([Request(PROMPT, 9)], caller)


def test_prompts_for_which_there_is_no_memory_do_not_end_the_thread(target: Gated) -> None:
    thread = thread_of(target)
    target.error = torch.OutOfMemoryError("no memory for a prompt")
    for _ in range(10):
        caller = Caller()
        thread.submit([Request(PROMPT, 9)], caller)
        caller.ends()
    target.error = None
    good = Caller()
    thread.submit([Request(PROMPT, 1)], good)
    assert good.completion().tokens == target.greedy(PROMPT, 1)
    thread.close()


def test_a_step_that_goes_well_forgives_those_that_failed(target: Gated) -> None:
    thread = thread_of(target)
    for _ in range(10):
        target.error = RuntimeError("now and then")
        failing, good = Caller(), Caller()
        thread.submit([Request(PROMPT, 9)], failing)
        failing.ends()
        target.error = None
        thread.submit([Request(PROMPT, 1)], good)
        assert good.completion().tokens == target.greedy(PROMPT, 1)
    thread.close()


def test_the_death_of_the_thread_is_told_to_everyone(
    target: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = thread_of(target, max_batch=1)
    target.gate.clear()
    running, waiting = Caller(), Caller()
    thread.submit([Request(PROMPT, 30)], running)
    thread.submit([Request(PROMPT, 30)], waiting)

    def broken(event: Event) -> None:
        raise ZeroDivisionError("in the loop")

    monkeypatch.setattr(thread, "_report", broken)
    target.gate.set()
    for caller in (running, waiting):
        failure = caller.failure()
        assert isinstance(failure, Closing)
        assert isinstance(failure.__cause__, ZeroDivisionError)
    assert not thread.alive
    with pytest.raises(Closing, match="in the loop"):
        thread.submit([Request(PROMPT, 9)], running)


def test_a_thread_that_drains_ends_what_it_holds(target: Gated) -> None:
    thread = thread_of(target, max_batch=1)
    callers = [Caller(), Caller()]
    target.gate.clear()
    for caller in callers:
        thread.submit([Request(PROMPT, 30)], caller)
    thread.drain()
    with pytest.raises(Closing, match="takes no new requests"):
        thread.submit([Request(PROMPT, 9)], Caller())
    assert thread.alive
    target.gate.set()
    for caller in callers:
        assert caller.completion().tokens == target.greedy(PROMPT, 30)
    thread.close()
    assert not thread.alive


def test_a_closed_thread_tells_those_that_it_holds(target: Gated) -> None:
    thread = thread_of(target)
    caller = Caller()
    target.gate.clear()
    thread.submit([Request(PROMPT, 400)], caller)
    assert target.reached.wait(20)
    closing = threading.Thread(target=thread.close)
    closing.start()
    # The request would have ended if the engine did not find the order after this forward.
    end = time.monotonic() + 20
    while thread._inbox.empty():
        assert time.monotonic() < end
        time.sleep(0.01)
    target.gate.set()
    closing.join(20)
    assert not closing.is_alive()
    assert target.forwards == 1
    assert "the server is stopping" in str(caller.failure())
    assert thread.held == 0
    thread._thread.join(20)
    assert not target.cached


def test_foreign_code_that_fails_ends_nothing(target: Gated) -> None:
    def watch(event: Event) -> None:
        raise KeyError("a watcher")

    def callback(index: int, report: Report) -> None:
        raise KeyError("a callback")

    thread = thread_of(target, watch=watch)
    thread.submit([Request(PROMPT, 9)], callback)
    caller = Caller()
    thread.submit([Request(PROMPT, 9)], caller)
    assert caller.completion().tokens == target.greedy(PROMPT, 9)
    assert thread.alive
    thread.close()


@pytest.mark.skipif(kernels() is None, reason="no kernels")
def test_kernels_have_torchs_number_of_threads_there_from_the_beginning() -> None:
    before, found = torch.get_num_threads(), SimpleQueue[int]()
    openmp = ctypes.CDLL(str(_TORCH))
    torch.set_num_threads(before + 2)
    try:
        thread = EngineThread(Engine(MarkovTarget(), method("ar")))
        thread._inbox.put(lambda: found.put(openmp.omp_get_max_threads()))
        assert found.get(timeout=20) == before + 2
        thread.close()
    finally:
        torch.set_num_threads(before)
