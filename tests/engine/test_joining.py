"""Prompts are cached in pieces, between the steps of requests that run or within them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.engine.engine import Engine
from draftwood.engine.joining import ALONE, BETWEEN, TOGETHER, WITHIN, JoiningRequest, shared_out
from draftwood.engine.prompts import Prompts
from draftwood.engine.request import Delta, Event, Finished, Request
from draftwood.methods import method
from draftwood.policies.auto.calibration import Calibration
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import (
    MOST_READ,
    Needs,
    Outcome,
    RequestLoad,
    StepReport,
    StepTimes,
    TargetOutput,
)
from draftwood.runner.attach import attach
from draftwood.runner.prefill import CHUNK
from draftwood.runner.recompute import RecomputingRunner
from draftwood.runner.to_host import unread
from draftwood.tree import tree_of
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.tiny_llama import tiny_llama

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)
LONG = tuple(1 + i * i % 11 for i in range(6 * BETWEEN + 7))


def engine_of(target: MarkovTarget, name: str = "goose") -> Engine:
    return Engine(target, method(name), host=FakeHost(target.info))


def tokens_of(events: list[Event], number: int) -> list[int]:
    return [
        token
        for event in events
        if isinstance(event, Delta) and event.request_id == number
        for token in event.tokens
    ]


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("name", ["ar", "goose", "talon", "eagle3", "auto", "tr"])
def test_a_long_prompt_joins_in_pieces(name: str, *, within: bool) -> None:
    target = MarkovTarget(context_limit=4096)
    target.reads_within = within
    engine = engine_of(target, name)
    running = engine.add(Request(PROMPT, 300))
    engine.step()
    late = engine.add(Request(LONG, 30))
    target.pieces.clear()
    between = 0
    events: list[Event] = []
    forwards = target.forwards
    while not tokens_of(events, late):
        found = engine.step()
        events += found
        assert tokens_of(found, running), "the one that runs gets a token in every step"
        between += 1
    assert between == len(target.pieces) >= (2 if name == "auto" else 3)
    assert target.forwards - forwards == between
    assert sum(target.pieces) == len(LONG)
    while engine.busy:
        events += engine.step()
    done = {e.request_id: e.completion for e in events if isinstance(e, Finished)}
    assert done[running].tokens == target.greedy(PROMPT, 300)
    assert done[late].tokens == target.greedy(LONG, 30)
    # Drafters have learnt from the prompt as if it had been cached at once.
    alone = engine_of(MarkovTarget(context_limit=4096), name).generate([Request(LONG, 30)])[0]
    more = done[late].tally.steps - alone.tally.steps
    if name in ("talon", "eagle3"):  # whose model reads the prompt in pieces, too
        assert 0 <= more <= len(LONG) // MOST_READ
    elif name != "auto":  # its trees depend on the batch
        assert more == 0


def test_prompts_are_cached_at_once_while_none_runs() -> None:
    target = MarkovTarget(context_limit=4096)
    engine = engine_of(target)
    for prompts in ((LONG,), (LONG[:500], PROMPT, LONG[1:500])):
        done = engine.generate([Request(prompt, 5) for prompt in prompts])
        assert [c.tokens for c in done] == [target.greedy(prompt, 5) for prompt in prompts]
        assert not target.pieces


def test_of_several_prompts_a_cpu_caches_few_tokens_together() -> None:
    target = MarkovTarget(context_limit=4096)
    engine = engine_of(target)
    prompts = [LONG[i : i + 800] for i in range(3)]
    for prompt in prompts:
        engine.add(Request(prompt, 5))
    [first] = engine.step()
    assert target.pieces == [800, TOGETHER - 800]
    assert (first.request_id, tokens_of([first], 0)) == (0, list(target.greedy(prompts[0], 1)))
    done = {e.request_id: e.completion for e in engine.stream([]) if isinstance(e, Finished)}
    assert [done[i].tokens for i in range(3)] == [target.greedy(p, 5) for p in prompts]
    target.info = replace(target.info, device=torch.device("cuda"))
    assert Prompts(target, Needs(), None)._most(3, alone=True) == ALONE


def test_first_tokens_do_not_wait_for_a_step_that_nobody_else_needs() -> None:
    target = MarkovTarget(context_limit=4096)
    engine = engine_of(target, "ar")
    engine.add(Request(PROMPT, 5))
    [first] = engine.step()
    assert isinstance(first, Delta)
    forwards = [target.forwards]
    engine.step()
    assert [*forwards, target.forwards] == [0, 1]


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    target = MarkovTarget(context_limit=4096)
    engine = engine_of(target, "ar")
    engine.add(Request(PROMPT, 300))
    engine.step()
    long, short = engine.add(Request(LONG, 5)), engine.add(Request(LONG[9:19], 5))
    events = engine.step()
    assert tokens_of(events, short)
    assert target.pieces == [WITHIN - 10, 10]
    while not tokens_of(events, long):  # and the long one takes no longer for short ones
        engine.add(Request(LONG[: WITHIN // 2], 1))
        before = len(events)
        events += engine.step()
        assert len(events) > before
    assert sum(target.pieces[::2]) >= len(LONG)


def test_a_request_that_joins_may_be_cancelled() -> None:
    target = MarkovTarget(context_limit=4096)
    engine = engine_of(target)
    engine.add(Request(PROMPT, 20))
    engine.step()
    late = engine.add(Request(LONG, 30))
    engine.step()
    ended = engine.cancel(late)
    assert ended is not None
    assert (ended.completion.reason, ended.completion.tokens) == ("cancelled", ())
    assert len(target.cached) == 1
    assert next(e for e in engine.stream([]) if isinstance(e, Finished)).completion.tokens == (
        target.greedy(PROMPT, 20)
    )


def test_half_of_a_piece_is_of_those_that_came_first_and_half_of_the_shortest() -> None:
    assert shared_out([5, 7, 9], 100) == [5, 7, 9]
    assert shared_out([5, 7, 9], 8) == [5, 3, 0]
    assert shared_out([5], 2) == [2]
    assert shared_out([90, 70, 5, 3], 20) == [10, 2, 5, 3]
    assert shared_out([90, 70], 20) == [10, 10]
    assert shared_out([90, 70], 1) == [1, 0]


def tuner_of(first: float, token: float) -> AutoTuner:
    """A forward over n tokens takes ``first + n * token`` seconds."""
    curve = Curve((1, 1001), (first + token, first + 1001 * token))
    tuner = AutoTuner(Calibration(), LiveCosts(StepCosts(target=curve)))
    tuner.begin([RequestLoad(10, 10, 1.0, 0.0)])
    return tuner


def test_a_piece_is_as_large_as_makes_its_tokens_cheap() -> None:
    # A token of a piece of n takes 1 + first / n, and 1.05 times that of 2,048 at most.
    assert tuner_of(3.2, 1.0).prompt_piece() == 64
    assert tuner_of(3.4, 1.0).prompt_piece() == 96
    assert tuner_of(1.0, 1.0).prompt_piece() == 32
    assert tuner_of(1e6, 1.0).prompt_piece() == 2048


def test_a_piece_is_sized_by_the_cost_of_prompts_where_it_is_known() -> None:
    forward = Curve((1, 1001), (2.0, 1002.0))
    prompt = Curve((1, 64, 512), (64.0, 64.0, 288.0))
    tuner = AutoTuner(Calibration(), LiveCosts(StepCosts(forward, prompt=prompt)))
    tuner.begin([RequestLoad(10, 10, 1.0, 0.0)])
    # 0.5 a token beyond 64, and 32 more: 1.05 times the cost of a token in 2,048 is reached at 773.
    assert tuner.prompt_piece() == 1024


def test_a_piece_is_no_larger_where_large_ones_are_dearer() -> None:
    prompt = Curve((1, 64, 128, 256), (6.0, 32.0, 60.0, 150.0))
    costs = StepCosts(Curve((1, 2), (1.0, 1.0)), prompt=prompt)
    tuner = AutoTuner(Calibration(), LiveCosts(costs))
    tuner.begin([RequestLoad(10, 10, 1.0, 0.0)])
    # For 64, 96, 128 and 192 tokens 0.5, 0.48, 0.47 and 0.55 each.
    assert tuner.prompt_piece() == 96


PROMPT_COSTS = Curve((1, 64, 128), (6.0, 37.5, 101.5))
"""0.5 a token up to 64, then 1."""


def beside(step: float) -> AutoTuner:
    """A tuner of one request whose plain step takes so long."""
    costs = StepCosts(Curve((1, 65), (step, step + 32.0)), prompt=PROMPT_COSTS)
    tuner = AutoTuner(Calibration(), LiveCosts(costs))
    tuner.begin([RequestLoad(10, 10, 1.0, 0.0)])
    return tuner


def test_a_piece_within_a_step_costs_what_it_adds() -> None:
    assert beside(1.5).prompt_piece_within() == 32
    assert beside(21.0).prompt_piece_within() == 48, "it takes as long as the rest of the step"
    assert beside(50.0).prompt_piece_within() == 64, "larger ones have dear tokens"


def test_pieces_go_with_a_step_where_they_cost_less_than_between() -> None:
    tuner = beside(21.0)
    costs, forward = tuner.costs, tuner.costs.now(1).target.seconds(1)
    predicted = costs.within(1, 1, 32)
    assert predicted == PROMPT_COSTS.seconds(33) - PROMPT_COSTS.seconds(1)
    assert beside(1.5).costs.within(1, 1, 32) == PROMPT_COSTS.seconds(33) - 1.5, "a step takes less"
    for _ in range(64):
        costs.observe(1, 10, 1, forward + 3 * predicted, 0.0, 32)
    assert costs.within(1, 1, 32) == pytest.approx(3 * predicted, rel=0.1)
    assert costs.now(1).target.seconds(1) == forward, "the forward's own costs are as before"
    assert tuner.prompt_piece_within() == 0
    pieces = [tuner.prompt_piece_within() for _ in range(400)]
    assert pieces[:9] == [0] * 9
    assert pieces[-1] > 0, "it is tried again"


def test_only_the_last_part_of_a_prompt_keeps_its_logits() -> None:
    request: Any = SimpleNamespace(request=Request(PROMPT), slot=0)
    joining = JoiningRequest(request)
    whole, features = torch.rand(4, 50), torch.rand(4, 3)
    for begin in (0, 2):
        own = slice(begin, begin + 2)
        joining.add(2, TargetOutput(whole[own], *unread(), features=features[own]))
    assert [len(part.logits) for part in joining._parts] == [0, 1]
    output = joining.output(prompt_rows=False)
    assert torch.equal(output.logits, whole[-1:])
    assert output.features is not None
    assert torch.equal(output.features, features)
    for tensor in (output.logits, *(part.features for part in joining._parts)):
        assert tensor is not None
        assert tensor.untyped_storage().nbytes() == tensor.nbytes, "nothing else is kept alive"


def test_a_piece_takes_as_long_as_a_step() -> None:
    tuner = tuner_of(1.0, 1.0)
    tree = tree_of(range(100), range(-1, 99))
    logits = torch.zeros(100, 8)
    none = np.empty(0, dtype=np.int64)
    rows = TargetOutput(logits, none, none, np.empty(0, dtype=np.float32))
    tuner.observe(StepReport([None], [Outcome(tree, (), (1,), rows)], StepTimes()))
    assert tuner.prompt_piece() == 128, "the step's forward is over 100 tokens"


def test_pieces_of_several_prompts_go_with_a_step() -> None:
    target = MarkovTarget(context_limit=4096)
    engine = engine_of(target)
    engine.add(Request(PROMPT, 300))
    engine.step()
    prompts = [LONG[:30], LONG[5:40], LONG[9:99]]
    numbers = [engine.add(Request(prompt, 5)) for prompt in prompts]
    target.pieces.clear()
    events = engine.step()
    assert target.pieces == [30, WITHIN - 30]
    assert len(prompts[0]) + len(prompts[1]) > WITHIN
    assert tokens_of(events, numbers[0]) == list(target.greedy(prompts[0], 1))
    while engine.busy:
        events += engine.step()
    assert target.pieces == [30, 18, 17, 31, 48, 11]
    done = {e.request_id: e.completion for e in events if isinstance(e, Finished)}
    for number, prompt in zip(numbers, prompts, strict=True):
        assert done[number].tokens == target.greedy(prompt, 5)


def test_more_requests_that_run_take_larger_pieces_with_them() -> None:
    target = MarkovTarget(context_limit=4096)
    engine = engine_of(target, "ar")
    for i in range(40):
        engine.add(Request((*PROMPT, i % 13), 300))
    engine.step()
    engine.add(Request(LONG, 5))
    target.pieces.clear()
    engine.step()
    assert target.pieces == [80]


def test_the_tuner_learns_what_pieces_take(monkeypatch: pytest.MonkeyPatch) -> None:
    target = MarkovTarget(context_limit=4096)
    target.reads_within = False
    engine = engine_of(target, "auto")
    told: list[tuple[int, float]] = []
    monkeypatch.setattr(
        AutoTuner, "observe_prompt", lambda _, tokens, seconds: told.append((tokens, seconds))
    )
    engine.add(Request(PROMPT, 300))
    engine.step()
    assert [tokens for tokens, _ in told] == [len(PROMPT)]
    engine.add(Request(LONG, 5))
    while sum(target.pieces) < len(LONG):
        engine.step()
    assert [tokens for tokens, _ in told[1:]] == target.pieces
    assert len(target.pieces) > 1
    assert all(seconds > 0.0 for _, seconds in told)


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("name", ["goose", "eagle3"])
def test_pieces_of_a_model(name: str, monkeypatch: pytest.MonkeyPatch, *, within: bool) -> None:
    model = tiny_llama(context=2048)
    prompt = [7 + i * i % 50 for i in range(600)]
    runner = attach(model)
    assert not isinstance(runner, RecomputingRunner)
    assert runner.readable(runner.open(700), 600)
    assert runner.most_within == CHUNK
    if not within:
        monkeypatch.setattr(type(runner), "readable", lambda *_: False)
    host = FakeHost(runner.info)
    engine = Engine(runner, method(name), host=host)
    [alone] = engine.generate([Request(prompt, 12, eos=())])
    engine.add(Request(prompt[:9], 40, eos=()))
    engine.step()
    late = engine.add(Request(prompt, 12, eos=()))
    events = []
    while engine.busy:
        events += engine.step()
    done = {e.request_id: e.completion for e in events if isinstance(e, Finished)}
    assert done[late].tokens == alone.tokens
    # A draft model reads a prompt in pieces as well while others run.
    assert name != "goose" or done[late].tally.steps == alone.tally.steps
    runner.detach()
