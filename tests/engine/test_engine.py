"""The loop on a target without a model: exactness, endings, cancelling, batches."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Delta, Finished, Request, Stepped
from draftwood.engine.stats import Tally
from draftwood.errors import DraftwoodError
from draftwood.methods import method, recipes
from draftwood.methods.shipped_models import ASSETS
from draftwood.protocols import (
    Bid,
    Built,
    Host,
    LevelBid,
    Prediction,
    Price,
    RequestLoad,
    StepReport,
    Tuner,
)
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import Draw
from tests.factories.complete_methods import complete
from tests.factories.markov_target import FakeHost, MarkovTarget

METHODS = sorted(recipes())
CALIBRATION = ASSETS / "embedded" / "calibration.json"
PROMPT = (1, 5, 2, 7, 1, 5, 2, 7, 1)


def engine_of(target: MarkovTarget, name: str, max_batch: int = 64) -> Engine:
    host = FakeHost(target.info, reads=True)
    return Engine(target, method(complete(name)), max_batch=max_batch, host=host)


def decode(target: MarkovTarget, name: str, request: Request) -> tuple[int, ...]:
    return engine_of(target, name).generate([request])[0].tokens


def drafts_were_accepted(name: str, done: Sequence[Completion]) -> bool:
    """Whether some were, or the method drafts nothing."""
    return (sum(each.tally.accepted for each in done) > 0) == (name != "ar")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("seed", "count", "context", "reason"),
    [
        *((7, count, 256, "length") for count in (1, 2, 3, 60)),
        *(pytest.param(seed, 60, 256, "length", marks=pytest.mark.slow) for seed in (1, 2)),
        (0, 100, 30, "context"),
        (0, 50, 256, "eos"),
    ],
)
def test_greedy_tokens_and_their_end_are_those_of_plain_decoding(
    name: str, seed: int, count: int, context: int, reason: str
) -> None:
    target = MarkovTarget(seed=seed, context_limit=context)
    plain = target.greedy(PROMPT, min(count, context - len(PROMPT)))
    eos = frozenset({plain[20], 99} if reason == "eos" else ())
    end = next((i + 1 for i, token in enumerate(plain) if token in eos), len(plain))
    completion = engine_of(target, name).generate([Request(PROMPT, count, eos=eos)])[0]
    assert completion.tokens == plain[:end]
    assert completion.reason == reason
    assert end < 60 or drafts_were_accepted(name, [completion])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("seed", [0, pytest.param(7, marks=pytest.mark.slow)])
def test_sampling_is_the_seed_s_and_without_sampled_drafts_plain_sampling_s(
    name: str, seed: int
) -> None:
    sampling = SamplingParams(temperature=0.8, top_p=0.95, seed=seed)
    request = Request(PROMPT, max_new_tokens=60, sampling=sampling)
    target = MarkovTarget(sharpness=1.0)
    found = decode(target, name, request)
    assert decode(target, name, request) == found
    # A sampled draft yields other tokens of the same law; `same_tokens` tells the methods apart.
    assert (found == decode(target, "ar", request)) == method(name).same_tokens(0.8)
    other = Request(PROMPT, 60, SamplingParams(temperature=0.8, top_p=0.95, seed=seed + 1))
    assert decode(target, name, other) != found


@pytest.mark.parametrize("name", METHODS)
def test_penalties_follow_each_path(name: str) -> None:
    sampling = SamplingParams(
        repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2, banned_tokens=(3,)
    )
    request = Request(PROMPT, max_new_tokens=40, sampling=sampling)
    target = MarkovTarget(seed=7)
    plain = decode(target, "ar", request)
    done = engine_of(target, name).generate([request])
    assert done[0].tokens == plain
    assert drafts_were_accepted(name, done)
    assert 3 not in plain
    assert plain != target.greedy(PROMPT, 40)


@pytest.mark.parametrize("name", METHODS)
def test_batch_mates_do_not_matter(name: str) -> None:
    requests = [
        Request(PROMPT[: 3 + i], max_new_tokens=10 + 7 * i, sampling=SamplingParams(t, seed=i))
        for i, t in enumerate([0.0, 0.9, 0.0, 0.7, 0.0])
    ]
    target = MarkovTarget()
    together = engine_of(target, name, max_batch=3).generate(requests)
    alone = [decode(target, name, request) for request in requests]
    assert [c.tokens for c in together] == alone
    assert drafts_were_accepted(name, together)
    assert not target.cached, "every slot is given back"


def test_trees_save_target_calls() -> None:
    target = MarkovTarget()
    decode(target, "ar", Request(PROMPT, max_new_tokens=100))
    plain, target.forwards = target.forwards, 0
    completion = Engine(target, method("goose")).generate([Request(PROMPT, 100)])[0]
    assert plain == 99
    assert target.forwards < plain / 2
    tally = completion.tally
    assert tally.steps == target.forwards
    assert tally.committed == len(completion.tokens) - 1
    assert tally.mean_acceptance_length == pytest.approx(99 / target.forwards)


def test_should_stop_is_asked_after_every_token() -> None:
    target = MarkovTarget()
    seen: list[int] = []

    def stop(ids: torch.Tensor) -> bool:
        seen.append(ids.shape[-1])
        return ids.shape[-1] == len(PROMPT) + 11

    request = Request(PROMPT, 50, should_stop=stop)
    completion = Engine(target, method("goose")).generate([request])[0]
    assert completion.tokens == target.greedy(PROMPT, 11)
    assert completion.reason == "stop"
    assert seen == list(range(len(PROMPT) + 1, len(PROMPT) + 12))


def test_deltas_add_up_and_tell_accepted_tokens_apart() -> None:
    target = MarkovTarget()
    events = list(Engine(target, method("goose")).stream([Request(PROMPT, 40)]))
    deltas = [e for e in events if isinstance(e, Delta)]
    steps = [e.stats for e in events if isinstance(e, Stepped)]
    assert tuple(t for d in deltas for t in d.tokens) == target.greedy(PROMPT, 40)
    assert deltas[0].accepted == (False,)
    assert deltas[0].sources == ("",)
    for delta, step in zip(deltas[1:], steps, strict=True):
        drafted = [step.tree.sources[node] for node in step.path][: len(delta.tokens)]
        assert delta.sources == (*drafted, "")[: len(delta.tokens)]
        assert delta.accepted == tuple(source != "" for source in delta.sources)
        assert len(delta.tokens) == step.committed
    assert isinstance(events[-1], Finished)
    assert {source for d in deltas for source in d.sources} == {"", "context", "adjacency"}


def test_a_path_that_is_cut_off_has_the_sources_of_what_is_left() -> None:
    target = MarkovTarget()
    whole = list(Engine(target, method("goose")).stream([Request(PROMPT, 40)]))
    deltas = [e for e in whole if isinstance(e, Delta)]
    place = next(i for i, d in enumerate(deltas) if sum(d.accepted) > 1)
    before = sum(len(d.tokens) for d in deltas[:place])
    stopped = Request(PROMPT, 40, should_stop=lambda ids: ids.shape[1] == len(PROMPT) + before + 1)
    events = list(Engine(target, method("goose")).stream([stopped]))
    *_, last = [e for e in events if isinstance(e, Delta)]
    assert last.sources == deltas[place].sources[:1]
    assert last.accepted == (True,)


def test_cancel_waiting_and_running() -> None:
    target = MarkovTarget()
    engine = Engine(target, method("goose"), max_batch=1)
    running, waiting = engine.add(Request(PROMPT, 50)), engine.add(Request(PROMPT, 50))
    engine.step()
    ended = engine.cancel(waiting)
    assert ended is not None
    assert ended.completion.tokens == ()
    ended = engine.cancel(running)
    assert ended is not None
    assert ended.completion.reason == "cancelled"
    assert ended.completion.tokens == target.greedy(PROMPT, len(ended.completion.tokens))
    assert not engine.busy
    assert not target.cached
    assert engine.cancel(running) is None


def test_leaving_a_stream_early_releases_everything() -> None:
    target = MarkovTarget()
    engine = Engine(target, method("goose"))
    for _ in engine.stream([Request(PROMPT, 50), Request(PROMPT[:4], 50)]):
        break
    # The generator's own clean-up has run: it is garbage as soon as the loop is left.
    assert not engine.busy
    assert not target.cached


def test_draft_forwards_are_counted_and_shared_by_a_batch() -> None:
    target = MarkovTarget()
    engine = engine_of(target, "sd:budget=4")
    requests = [Request(PROMPT, 41), Request(PROMPT[:5], 41)]
    steps = [e.stats for e in engine.stream(requests) if isinstance(e, Stepped)]
    assert [(step.batch, step.draft_calls) for step in steps[:2]] == [(2, 4), (2, 4)]
    steps = [e.stats for e in engine.stream(requests[:1]) if isinstance(e, Stepped)]
    # One forward per node of a chain, each asked below the one before.
    assert [step.draft_calls for step in steps] == [step.tree.depth for step in steps]
    assert steps[0].draft_calls == 4
    tally = Tally()
    for step in steps:
        tally.add(step)
    assert tally.draft_efficiency == sum(step.tree.depth for step in steps) / len(steps)


AUTO = [
    "auto",
    "auto:drafter=model:layout=ranked",
    "auto:drafter=eagle3:layout=ranked",
    "auto:draft=x:budget=9:level=2:layout=ranked",
    "auto:drafter=model",
    "auto:drafter=eagle3",
]


@pytest.mark.parametrize(
    "name", ["auto:drafter=model:layout=drawn", "auto:drafter=eagle3:layout=either"]
)
def test_what_auto_draws_of_a_sampled_request_is_verified_as_drawn(name: str) -> None:
    target = MarkovTarget(sharpness=1.5)
    requests = [Request(PROMPT[: 4 + i], 40, SamplingParams(0.9, seed=i)) for i in range(4)]
    engine = engine_of(target, f"{name}:calibration={CALIBRATION}", 4)
    steps = [e.stats for e in engine.stream(requests) if isinstance(e, Stepped)]
    drawn = [step for step in steps if (step.tree.draws != Draw.ONE_HOT).any()]
    assert drawn
    taken = [node for step in drawn for node in step.path if step.tree.draws[node]]
    assert taken, "some of what was drawn is accepted"


CHAINS = ["adaptive-chain:warmup=0", "throughput-chain:cooldown=true:context.lengths=2"]


@pytest.mark.parametrize("name", AUTO + CHAINS)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("max_batch", [1, 4])
def test_methods_with_a_tuner_yield_what_plain_decoding_does(
    name: str, temperature: float, max_batch: int
) -> None:
    target = MarkovTarget(sharpness=1.5)
    requests = [
        Request(PROMPT[: 4 + i], 25 + 6 * i, SamplingParams(temperature, seed=i)) for i in range(4)
    ]
    expected = [c.tokens for c in engine_of(target, "ar").generate(requests)]
    found = engine_of(target, name, max_batch).generate(requests)
    assert [c.tokens for c in found] == expected
    assert sum(c.tally.accepted for c in found) > 0
    if temperature == 0.0:
        assert expected == [target.greedy(r.ids, r.max_new_tokens) for r in requests]


def test_auto_asks_a_model_only_if_it_is_given_one() -> None:
    target = MarkovTarget()
    for name, asks in (("auto", False), ("auto:drafter=model", True)):
        engine = Engine(target, method(name), host=FakeHost(target.info))
        tally = engine.generate([Request(PROMPT, 60)])[0].tally
        assert (tally.draft_calls > 0) == asks
        assert (tally.drafted_by_source["draft"] > 0) == asks


# Greedy text here runs in circles: a long copy is accepted for the most part or not at all, which
# probabilities of single tokens cannot tell, so somewhat too much is expected.
@pytest.mark.parametrize(("temperature", "error"), [(0.0, 0.25), (0.7, 0.1)])
def test_auto_comes_to_expect_what_is_committed(temperature: float, error: float) -> None:
    """Requests teach one another: after some of them, of a text that no calibration has seen."""
    target = MarkovTarget(sharpness=2.0)
    engine = Engine(target, method("auto"), host=FakeHost(target.info))
    predicted, committed, count = 0.0, 0.0, 0
    for i in range(30):
        request = Request(PROMPT[: 3 + i % 5], 60, SamplingParams(temperature, seed=i))
        steps = [e.stats for e in engine.stream([request]) if isinstance(e, Stepped)]
        if i >= 12:
            # The last step's tokens may be cut off, and a step with room for none is not bid for.
            bidding = [step for step in steps[:-1] if step.prediction is not None]
            predicted += sum(step.expected for step in bidding if step.expected is not None)
            committed += sum(step.committed for step in bidding)
            count += len(bidding)
    assert predicted == pytest.approx(committed, rel=error)
    assert committed > 1.05 * count, "something was drafted"


PREDICTING = ("auto", "adaptive-chain")


@pytest.mark.parametrize("name", METHODS)
def test_a_policy_with_a_tuner_predicts_each_step(name: str) -> None:
    target = MarkovTarget()
    events = engine_of(target, name).stream([Request(PROMPT, 40), Request(PROMPT[:5], 20)])
    steps = [e.stats for e in events if isinstance(e, Stepped)]
    if name in PREDICTING:
        bidding = [(step, step.prediction) for step in steps if step.prediction is not None]
        assert len(bidding) >= len(steps) - 2, "all but a request's last token"
        for step, prediction in bidding:
            assert step.expected == prediction.tokens
            assert 1.0 <= prediction.tokens <= 1.0 + step.tree.drafted
            assert (step.expected == 1.0) == (step.tree.drafted == 0)
            labelled = prediction.candidates
            # What was accepted is labelled so; beside it only the bonus may be a candidate.
            assert 0 <= sum(labelled.taken) - len(step.path) <= 1
            taken = [s for s, hit in zip(labelled.sources, labelled.taken, strict=True) if hit]
            assert taken[: len(step.path)] == [step.tree.sources[node] for node in step.path]
        numbers = [prediction.step for _, prediction in bidding]
        # One tuner counts for both; a step without a search, which is timed, predicts nothing.
        assert numbers == sorted(numbers)
        assert numbers[0] == 1
        assert numbers[-1] - 1 <= len(set(numbers)) <= numbers[-1]
    else:
        assert [(step.prediction, step.expected) for step in steps] == [(None, None)] * len(steps)


class Noting(Tuner):
    """A tuner that writes down the load of each step, and the policy's method to return it."""

    def __init__(self) -> None:
        self.seen: list[list[RequestLoad]] = []
        self.read: list[int] = []

    def __call__(self, host: Host, drafters: Mapping[str, Built]) -> "Noting":
        return self

    def begin(self, loads: Sequence[RequestLoad]) -> list[None]:
        self.seen.append(list(loads))
        return [None] * len(loads)

    def reads_within(self, tokens: int) -> None:
        self.read.append(tokens)

    def levels(self, bids: Mapping[str, Sequence[LevelBid]]) -> tuple[str, list[int]]:
        raise AssertionError("no request asks for a draft level")

    def price(self, bids: Sequence[Bid]) -> Price:
        raise AssertionError("no request bids")

    def observe(self, report: StepReport) -> list[Prediction | None]:
        assert report.times.target > 0.0
        assert report.prompt_tokens == self.read[-1]
        return [None] * len(report.outcomes)


def noted(target: MarkovTarget, name: str, patch: pytest.MonkeyPatch) -> tuple[Engine, Noting]:
    """An engine of a method whose policy has a tuner that writes down its loads."""
    noting, chosen = Noting(), method(name)
    patch.setattr(type(chosen.policy), "tuner", noting)
    return Engine(target, chosen, max_batch=2, host=FakeHost(target.info)), noting


def test_a_tuner_is_told_what_is_left_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, noting = noted(MarkovTarget(), "ar", monkeypatch)
    engine.generate(
        [
            Request(PROMPT, 5),
            Request(PROMPT, 3, SamplingParams(0.7)),
            Request(PROMPT[:5], 4),
        ]
    )
    # The first token comes with the prompt; three wait for two places until the second has ended.
    # The third's prompt is part of the next step.
    assert [[load[:2] for load in loads] for loads in noting.seen] == [
        [(10, 4), (10, 2)],
        [(11, 3), (11, 1)],
        [(12, 2)],
        [(13, 1), (6, 3)],
        [(7, 2)],
        [(8, 1)],
    ]
    assert noting.read == [0, 0, 5, 0, 0, 0]
    assert [load.temperature for load in noting.seen[0]] == [0.0, 0.7]
    assert {load.pace for loads in noting.seen for load in loads} == {1.0}


def test_the_pace_of_a_request_is_a_moving_average_of_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, noting = noted(MarkovTarget(), "goose", monkeypatch)
    events = engine.stream([Request(PROMPT, 200)])
    committed = [e.stats.committed for e in events if isinstance(e, Stepped)]
    assert max(committed) > 1
    pace = [1.0]
    for each in committed[:-1]:
        pace.append(0.875 * pace[-1] + 0.125 * each)
    assert [load.pace for (load,) in noting.seen] == pytest.approx(pace)


def test_a_calibration_that_cannot_be_used_is_refused_before_work(tmp_path: Path) -> None:
    target = MarkovTarget()
    with pytest.raises(DraftwoodError, match=r"cannot read .*json"):
        engine_of(target, f"auto:calibration={tmp_path / 'missing.json'}")


def test_a_closed_engine_keeps_nothing_of_the_model() -> None:
    target = MarkovTarget()
    with Engine(target, "ar", max_batch=2, host=FakeHost(target.info)) as engine:
        for _ in range(3):
            engine.add(Request((1, 2, 3), 20))
        engine.step()
        assert (engine.running, engine.waiting) == (2, 1)
    assert not target.cached
    assert not engine.busy
    assert engine.generate([Request((1, 2, 3), 20)])[0].tokens == target.greedy((1, 2, 3), 20)
