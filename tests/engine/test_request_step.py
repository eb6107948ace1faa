"""On another device than the CPU, events are made while it runs the next forward."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.phases import Phases
from draftwood.engine.request import Delta, Event, Finished, Request, Stepped
from draftwood.engine.sequence import RunningRequest
from draftwood.methods import method
from draftwood.protocols import Computed
from tests.engine.test_failures import PROMPT, Failing, drained, fail
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.tiny_llama import tiny_tokenizer


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Phases, "beside", True)


def engine_of(target: MarkovTarget, name: str = "ar") -> Engine:
    return Engine(target, method(name), tiny_tokenizer(), host=FakeHost(target.info))


class Unreadable:
    """A text stream that goes wrong at some token."""

    def __init__(self, after: int) -> None:
        self.left = after

    def push(self, tokens: Sequence[int]) -> str:
        self.left -= 1
        if self.left < 0:
            raise UnicodeError("no such character")
        return "."

    def flush(self) -> str:
        return ""


def streamed(events: Sequence[Event], number: int) -> tuple[int, ...]:
    own = [event for event in events if isinstance(event, Delta) and event.request_id == number]
    return tuple(token for event in own for token in event.tokens)


def test_events_are_made_between_the_forward_and_its_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    def logged(what: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(whole)
        def call(*given: Any, **named: Any) -> Any:
            log.append(what)
            return whole(*given, **named)

        return call

    for owner, name in (
        (MarkovTarget, "submit"),
        (Computed, "rows_with"),
        (RunningRequest, "told"),
    ):
        monkeypatch.setattr(owner, name, logged(name, getattr(owner, name)))
    step = ["submit", "rows_with", "told"]
    in_order = ["told", *step, *step, *step]
    beside = ["told", "submit", "rows_with", *2 * ["submit", "told", "rows_with"], "told"]
    for expected in (beside, in_order):
        log.clear()
        engine_of(MarkovTarget()).generate([Request(PROMPT, 4)])
        assert log == expected
        monkeypatch.setattr(Phases, "beside", False)


@pytest.mark.parametrize("name", ["ar", "goose"])
def test_the_events_of_a_request_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> dict[int, list[object]]:
        found: dict[int, list[object]] = {0: [], 1: []}
        requests = [Request(PROMPT, 20), Request(PROMPT[3:], 9, stop=("never",))]
        for event in engine_of(MarkovTarget(), name).stream(requests):
            what: object = event
            if isinstance(event, Stepped):
                what = event.stats.committed, event.stats.path
            elif isinstance(event, Finished):
                what = event.completion.tokens, event.completion.text, event.completion.reason
            found[event.request_id].append(what)
        return found

    beside = told()
    monkeypatch.setattr(Phases, "beside", False)
    assert beside == told()


def test_text_that_goes_wrong_ends_its_request() -> None:
    target = MarkovTarget()
    engine = engine_of(target)
    for _ in range(2):
        engine.add(Request(PROMPT, 12))
    stream: Any = Unreadable(after=5)
    engine._waiting[0].stream = stream
    done = drained(engine)
    assert [done[number].reason for number in (0, 1)] == ["error", "length"]
    assert "UnicodeError: no such character" in str(done[0].error)
    assert done[0].tokens == target.greedy(PROMPT, 5)
    assert done[0].text == "....."
    assert done[1].tokens == target.greedy(PROMPT, 12)
    assert not target.cached


@pytest.mark.parametrize("after", [4, 9])
def test_a_cancelled_request_has_all_its_text(after: int) -> None:
    target = MarkovTarget()
    engine = engine_of(target)
    first, second = engine.add(Request(PROMPT, 12)), engine.add(Request(PROMPT, 12))
    if after == 4:  # its text goes wrong just then
        stream: Any = Unreadable(after)
        engine._active.get(first, engine._waiting[0]).stream = stream
    events = [event for _ in range(5) for event in engine.step()]
    ended = engine.cancel(first)
    assert ended is not None
    assert ended.completion.reason == ("error" if after == 4 else "cancelled")
    tokens = target.greedy(PROMPT, 4 if after == 4 else 5)
    assert ended.completion.tokens == tokens
    if after != 4:
        assert ended.completion.text == tiny_tokenizer().decode(list(tokens))
    while engine.busy:
        events += engine.step()
    assert streamed(events, second) == target.greedy(PROMPT, 12)
    assert not target.cached


def test_a_step_that_fails_loses_no_event() -> None:
    target = Failing()
    engine = engine_of(target)
    engine.add(Request(PROMPT, 12))
    events = [event for _ in range(4) for event in engine.step()]
    fail(engine, target)
    events += engine.step()
    (ended,) = [event.completion for event in events if isinstance(event, Finished)]
    assert ended.reason == "error"
    assert ended.tokens == streamed(events, 0) == target.greedy(PROMPT, 4)
    assert not engine.busy
