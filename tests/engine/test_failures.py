"""What goes wrong in one request ends that request; the others have the tokens they would have."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor

from draftwood.engine.engine import Engine
from draftwood.engine.joining import BETWEEN
from draftwood.engine.request import Completion, Delta, Event, Finished, Request, checked
from draftwood.errors import DraftwoodError, RequestFailed
from draftwood.methods import method
from draftwood.policies.plain import Plain
from draftwood.protocols import Grower, Growth
from draftwood.sampling.sampler import Sampler, SamplingParams
from draftwood.tree import TokenTree
from tests.factories.markov_target import FakeHost, MarkovTarget

METHODS = [
    "ar",
    "goose",
    "rrsw",
    "traversal",
    "block",
    "mixed",
    "talon",
    "auto",
    "auto:neural=draft+eagle3",
]
PROMPT = (1, 5, 2, 7, 1, 5, 2, 7, 1)
BAD = (12, 3, 4, 3, 4)
AFTER = 6
"""Tokens that a request generates before it fails."""


class Poisoned(MarkovTarget):
    """Its logits are not numbers after so many tokens behind the bad prompt."""

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        found = super().logits(tokens)
        if tuple(tokens[: len(BAD)]) == BAD and len(tokens) >= len(BAD) + AFTER:
            return found + torch.nan
        return found


class Broken(LogitsProcessor):
    """Goes wrong after so many tokens."""

    keeps_state = False

    def __init__(self, what: Callable[[torch.Tensor], torch.Tensor], after: int = AFTER) -> None:
        self.what = what
        self.length = len(BAD) + after

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.what(scores) if input_ids.shape[1] >= self.length else scores


def raising(scores: torch.Tensor) -> torch.Tensor:
    raise KeyError("no such rule")


def banning(scores: torch.Tensor) -> torch.Tensor:
    return torch.full_like(scores, -torch.inf)


def stopping(ids: torch.Tensor) -> bool:
    if ids.shape[1] >= len(BAD) + AFTER + 1:
        raise ZeroDivisionError("by nothing")
    return False


def observing(learnt: object) -> None:
    if hasattr(learnt, "path"):
        raise LookupError("an observer")


def by(
    what: Callable[[torch.Tensor], torch.Tensor], temperature: float, after: int = AFTER
) -> Request:
    sampler = Sampler.from_processors([Broken(what, after)], temperature=temperature)
    return Request(BAD, 40, sampler=sampler)


KINDS: dict[str, tuple[Callable[[float], Request], str]] = {
    "nan": (
        lambda t: Request(BAD, 40, SamplingParams(t, seed=3)),
        f"the model's logits are not numbers at position {len(BAD) + AFTER}",
    ),
    "ban": (
        lambda t: by(banning, t),
        f"no token can follow at position {len(BAD) + AFTER}",
    ),
    "raise": (lambda t: by(raising, t), "KeyError: 'no such rule'"),
    "stop": (
        lambda t: Request(BAD, 40, SamplingParams(t), should_stop=stopping),
        "ZeroDivisionError: by nothing",
    ),
}


def engine_of(target: MarkovTarget, name: str, max_batch: int) -> Engine:
    return Engine(target, method(name), max_batch=max_batch, host=FakeHost(target.info))


def target_of(kind: str) -> MarkovTarget:
    return (Poisoned if kind == "nan" else MarkovTarget)(sharpness=1.5)


def mates() -> list[Request]:
    return [
        Request(PROMPT, 12),
        Request(PROMPT[:5], 15, SamplingParams(0.9, seed=1)),
        Request(PROMPT[2:], 9, SamplingParams(0.7, seed=2, top_k=6)),
    ]


@pytest.mark.parametrize("name", METHODS)
def test_one_bad_request_takes_nobody_with_it(name: str) -> None:
    expected = engine_of(MarkovTarget(sharpness=1.5), name, 3).generate(mates())
    cases = [("nan", 0.0, 3), ("nan", 0.8, 3), ("ban", 0.8, 3), ("raise", 0.8, 1), ("stop", 0.0, 3)]
    for kind, temperature, max_batch in cases:
        make, message = KINDS[kind]
        target = target_of(kind)
        first, *others = mates()
        engine = engine_of(target, name, max_batch)
        found = engine.generate([first, make(temperature), *others])
        bad = found.pop(1)
        assert [c.tokens for c in found] == [c.tokens for c in expected]
        assert [c.reason for c in found] == ["length"] * 3
        assert bad.reason == "error"
        assert len(bad.tokens) <= AFTER
        assert str(bad.error).startswith(f"request 1 failed: {message}")
        assert bad.error is not None
        assert bad.error.__cause__ is not None
        with pytest.raises(DraftwoodError, match="request 1 failed"):
            bad.checked()
        assert not target.cached, "every slot is given back"
        assert not engine.busy


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_completion_has_what_was_committed_before(kind: str, temperature: float) -> None:
    engine = engine_of(target_of(kind), "ar", 1)
    events = list(engine.stream([KINDS[kind][0](temperature)]))
    assert isinstance(events[-1], Finished)
    completion = events[-1].completion
    streamed = [token for event in events if isinstance(event, Delta) for token in event.tokens]
    assert streamed == list(completion.tokens)
    assert len(streamed) == AFTER
    assert completion.tally.committed == AFTER - 1
    with pytest.raises(DraftwoodError, match="request 0 failed"):
        list(checked(events))


def test_a_request_may_fail_at_its_first_token() -> None:
    target = MarkovTarget()
    engine = engine_of(target, "goose", 4)
    good, ended = engine.generate([Request(PROMPT, 20), by(raising, 0.0, after=0)])
    assert good.tokens == target.greedy(PROMPT, 20)
    assert (ended.tokens, ended.reason) == ((), "error")
    assert not target.cached
    assert engine.generate([Request(PROMPT, 20)])[0].tokens == good.tokens


def test_an_observer_that_fails_is_the_requests() -> None:
    target = MarkovTarget()
    requests = [Request(BAD, 9, observer=observing), Request(PROMPT, 20)]
    bad, good = engine_of(target, "goose", 4).generate(requests)
    assert str(bad.error) == "request 0 failed: LookupError: an observer"
    assert good.tokens == target.greedy(PROMPT, 20)


def test_a_policy_that_fails_is_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Plain.grow

    def grow(self: Plain, growth: Growth, state: None) -> Grower:
        if growth.room == 40 - 4:  # the third step of the bad request
            raise OverflowError("in a policy")
        return (yield from whole(self, growth, state))

    monkeypatch.setattr(Plain, "grow", grow)
    target = MarkovTarget()
    bad, good = engine_of(target, "ar", 2).generate([Request(BAD, 40), Request(PROMPT, 20)])
    assert str(bad.error) == "request 0 failed: OverflowError: in a policy"
    assert bad.tokens == target.greedy(BAD, 3)
    assert good.tokens == target.greedy(PROMPT, 20)


class Failing(MarkovTarget):
    """A target whose forward fails on demand, with room for so many slots."""

    fails = False
    room = 9

    def forward(self, slots: Any, trees: Sequence[TokenTree], *rest: Any, **named: Any) -> Any:
        if self.fails:
            raise RuntimeError("out of memory")
        return super().forward(slots, trees, *rest, **named)

    def open(self, capacity: int) -> int:
        if len(self.cached) == self.room:
            raise MemoryError
        return super().open(capacity)


def fail(engine: Engine, target: Failing) -> None:
    """Run a step that fails as a whole."""
    target.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step()
    target.fails = False


def test_an_interrupted_step_ends_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches and texts may differ then."""
    target = Failing()
    engine = engine_of(target, "goose", 1)
    engine.add(Request(PROMPT, 20))
    engine.step()
    with monkeypatch.context() as patched:
        patched.setattr(engine._phases, "learn", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    [done] = drained(engine).values()
    assert done.reason == "error"
    assert "it was interrupted" in str(done.error)
    assert engine.generate([Request(PROMPT, 20)])[0].tokens == target.greedy(PROMPT, 20)


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def drained(engine: Engine) -> dict[int, Completion]:
    done: dict[int, Completion] = {}
    while engine.busy:
        done |= finished(engine.step())
    return done


def finished(events: Sequence[Event]) -> dict[int, Completion]:
    return {e.request_id: e.completion for e in events if isinstance(e, Finished)}


@pytest.mark.parametrize("name", ["ar", "goose", "traversal", "auto"])
def test_after_a_failure_of_the_whole_step_the_engine_goes_on(name: str) -> None:
    target = Failing()
    engine = engine_of(target, name, 2)
    for prompt in (PROMPT, BAD, PROMPT[:4]):
        engine.add(Request(prompt, 30))
    engine.step()
    fail(engine, target)
    assert not target.cached
    # The third still waits.
    done = list(drained(engine).values())
    assert [c.reason for c in done] == ["error", "error", "length"]
    assert done.pop().tokens == target.greedy(PROMPT[:4], 30)
    for ended, begun in zip(done, (PROMPT, BAD), strict=True):
        assert ended.tokens == target.greedy(begun, len(ended.tokens))
        assert isinstance(ended.error, RequestFailed)
    assert engine.generate([Request(PROMPT, 30)])[0].tokens == target.greedy(PROMPT, 30)


def test_requests_that_find_no_room_wait_on() -> None:
    target = Failing()
    target.room = 1
    engine = engine_of(target, "goose", 3)
    for _ in range(3):
        engine.add(Request(PROMPT, 20))
    engine.step()
    assert (engine.running, engine.waiting) == (1, 2)
    done = drained(engine)
    assert {number: c.reason for number, c in done.items()} == dict.fromkeys(range(3), "length")
    assert {c.tokens for c in done.values()} == {target.greedy(PROMPT, 20)}


def test_a_request_that_finds_no_room_where_none_runs_ends_alone() -> None:
    target = Failing()
    target.room = 0
    engine = engine_of(target, "goose", 3)
    engine.add(Request(PROMPT, 20))
    engine.add(Request(BAD, 20))
    done = finished(engine.step())
    assert {number: c.reason for number, c in done.items()} == {0: "error"}
    assert isinstance(done[0].error, RequestFailed)
    target.room = 1
    assert drained(engine)[1].tokens == target.greedy(BAD, 20)


@pytest.mark.parametrize("within", [True, False])
def test_prompts_that_fail_leave_those_that_run_alone(
    monkeypatch: pytest.MonkeyPatch, *, within: bool
) -> None:
    target = Failing()
    target.reads_within = within
    engine = engine_of(target, "goose", 3)
    engine.add(Request(PROMPT, 20))
    engine.step()
    engine.add(Request(BAD, 20))
    with monkeypatch.context() as patch:
        failing = "submit_with_pieces" if within else "prefill"
        patch.setattr(target, failing, lambda *given: 1 / 0)
        events = engine.step()
    assert {number: c.reason for number, c in finished(events).items()} == {1: "error"}
    assert {e.request_id for e in events if isinstance(e, Delta)} == {0}, "it goes on in this step"
    assert drained(engine)[0].tokens == target.greedy(PROMPT, 20)
    assert not target.cached


def test_a_piece_that_fails_ends_those_whose_tokens_are_in_it_and_their_followers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = Failing(context_limit=2048)
    target.reads_within = False
    engine = engine_of(target, "goose", 5)
    engine.add(Request(PROMPT, 60))
    engine.step()
    long = tuple(1 + i * i % 11 for i in range(2 * BETWEEN))
    for ids in (long, long[1:], long[2:], long):  # half a piece of the first, half of the third
        engine.add(Request(ids, 20))
    with monkeypatch.context() as patch:
        patch.setattr(target, "prefill_piece", lambda *given: 1 / 0)
        ended = finished(engine.step())
    assert {number: c.reason for number, c in ended.items()} == dict.fromkeys((1, 3, 4), "error")
    done = drained(engine)
    assert done[0].tokens == target.greedy(PROMPT, 60)
    assert done[2].tokens == target.greedy(long[1:], 20)
    assert not target.cached


def test_a_stream_that_is_left_hands_on_the_events_of_others() -> None:
    target = Failing()
    engine = engine_of(target, "ar", 2)
    other = engine.add(Request(BAD, 2))
    stream = engine.stream([Request(PROMPT, 9)])
    assert isinstance(stream, Generator)
    seen: list[Event] = [next(stream)]
    stream.close()
    while engine.busy:
        seen += engine.step()
    told = [t for e in seen if isinstance(e, Delta) and e.request_id == other for t in e.tokens]
    assert tuple(told) == finished(seen)[other].tokens == target.greedy(BAD, 2)


def test_what_happened_before_a_step_failed_is_told_by_the_next() -> None:
    target = Failing()
    target.reads_within = False
    engine = engine_of(target, "goose", 3)
    engine.add(Request(PROMPT[2:], 30))
    [told] = engine.step()
    engine.add(Request(PROMPT, 1))
    engine.add(Request(BAD, 9))
    fail(engine, target)
    events = engine.step()
    assert not engine.busy
    done = finished(events)
    assert (done[1].reason, done[1].tokens) == ("length", target.greedy(PROMPT, 1))
    assert (done[2].reason, done[2].tokens) == ("error", target.greedy(BAD, 1))
    streamed = {e.request_id: e.tokens for e in (told, *events) if isinstance(e, Delta)}
    assert streamed == {number: c.tokens for number, c in done.items()}
    assert engine.step() == []


def test_the_end_of_a_request_of_a_failed_step_may_be_fetched() -> None:
    target = Failing()
    engine = engine_of(target, "ar", 2)
    number = engine.add(Request(PROMPT, 9))
    engine.step()
    fail(engine, target)
    ended = engine.cancel(number)
    assert ended is not None
    assert ended.completion.tokens == target.greedy(PROMPT, 1)
    assert not engine.busy
    assert engine.cancel(number) is None


def test_a_list_of_requests_is_answered_by_its_own_completions() -> None:
    target = Failing()
    engine = engine_of(target, "ar", 2)
    engine.add(Request(BAD, 9))
    engine.step()
    fail(engine, target)
    target.fails = True
    with pytest.raises(RuntimeError):
        engine.generate([Request(PROMPT, 9)])
    target.fails = False
    engine.add(Request(BAD, 3))
    assert [c.tokens for c in engine.generate([Request(PROMPT, 9)])] == [target.greedy(PROMPT, 9)]
    assert [c.reason for c in drained(engine).values()] == ["error", "length"]


def test_a_drafter_that_fails_to_let_go_keeps_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    target = MarkovTarget()
    engine = engine_of(target, "goose", 2)
    first, *others = engine._phases._drafters.values()
    assert others
    whole = first.release

    def release(slot: int) -> None:
        whole(slot)
        raise RuntimeError("stuck")

    monkeypatch.setattr(first, "release", release)
    engine.add(Request(PROMPT, 1))
    running = engine.add(Request(BAD, 30))
    with pytest.raises(RuntimeError, match="stuck"):
        engine.step()
    assert not target.cached
    assert [c.reason for c in drained(engine).values()] == ["length", "error"]
    assert engine.cancel(running) is None
    monkeypatch.undo()
    assert engine.generate([Request(PROMPT, 9)])[0].tokens == target.greedy(PROMPT, 9)


@pytest.mark.parametrize("error", [KeyboardInterrupt, DraftwoodError])
def test_a_request_that_is_interrupted_as_it_begins_keeps_no_slot(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MarkovTarget()
    engine = Engine(target, "ar", prefix_cache="1MB", host=FakeHost(target.info))
    text = PROMPT * 3
    engine.generate([Request(text, 5)])

    def restore(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(target, "restore", restore)
        engine.add(Request(text, 5))
        with pytest.raises(error):
            engine.step()
    assert not target.cached
    assert [done.reason for done in drained(engine).values()] == ["length"], "it waited on"


def test_a_request_that_is_interrupted_as_it_ends_keeps_no_slot() -> None:
    class Interrupting(dict[int, Any]):
        def pop(self, *given: Any) -> Any:
            raise KeyboardInterrupt

    target = MarkovTarget()
    engine = engine_of(target, "ar", 2)
    number = engine.add(Request(PROMPT, 20))
    engine.step()
    engine._joining = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        engine.cancel(number)
    assert not target.cached
