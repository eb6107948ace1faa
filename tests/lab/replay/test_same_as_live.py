"""Replays make the same steps as live runs, with and without the model."""

from dataclasses import replace
from typing import Any

import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.request import Event, Request, Stepped
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.decoding import decode_together
from draftwood.lab.replay.recording import MissingRowError, Recording
from draftwood.lab.replay.replayer import Replayer
from draftwood.lab.replay.substitute import replay_method
from draftwood.methods import method
from draftwood.policies.adaptive_chain import estimator
from draftwood.sampling.params import SamplingParams
from tests.lab.replay.live_and_replayed import COSTS, Stage, lived, replayed, stage

CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n"
SHORT = Prompt("short", "code", "s", ("def mul(",))
PROMPTS = [
    Prompt("code", "code", "s", (CODE,)),
    Prompt("talk", "chat", "s", ("Tell me about dogs.", "And about cats?"), dialogue=True),
]
# A method that comes twice: the second budget is replayed over the rows that the first recorded.
TABLES = [
    "ar",
    "pld",
    "tr",
    "iso3",
    "goose",
    "goose:budget=9",
    "sam",
    "lookahead:budget=24",
    "ngram-trie",
    "ngram-trie:trie.prompt=true:trie.order=frequency:budget=24",
    "throughput-chain",
    "auto",
]
MODELS = [
    "sd",
    "talon",
    "talon:budget=9",
    "dynatree",
    "eagle3:top_k=4:budget=12",
    "goose-eagle3",
    "adaptive-chain:warmup=0",
    "auto:neural=draft+eagle3:layout=ranked",
]


@pytest.fixture(scope="module")
def at() -> Stage:
    return stage("embedded")


def fresh(at: Stage, costs: StepCosts = COSTS) -> Stage:
    """The model on a host of these costs, on which nothing was learnt."""
    return replace(at, host=at.host.priced(costs).having({}))


@pytest.mark.parametrize(
    ("methods", "tokens"), [(TABLES, 12), pytest.param(MODELS, 7, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("temperature", [0.8, pytest.param(0.0, marks=pytest.mark.slow)])
def test_every_method_replays_the_steps_of_a_live_run(
    at: Stage, methods: list[str], tokens: int, temperature: float
) -> None:
    at = fresh(at)
    recording = at.record(PROMPTS, temperature=temperature, max_new_tokens=tokens)
    replayer = Replayer(recording, at.host, COSTS)
    alone = Replayer(recording, costs=COSTS)
    for spelt in methods:
        for prompt in recording.prompts:
            wanted = lived(at, spelt, prompt, recording.settings)
            first, _ = replayed(replayer, spelt, prompt)
            assert first == wanted, (spelt, prompt.id)
            size = recording.size
            second, found = replayed(alone, spelt, prompt)
            assert second == wanted, (spelt, prompt.id)
            assert not found.used_model
            assert recording.size == size


class CountingEngine(Engine):
    """An engine that remembers the draft forwards of its steps."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.draft_calls: list[int] = []

    def step(self) -> list[Event]:
        events = super().step()
        self.draft_calls += {e.stats.draft_calls for e in events if isinstance(e, Stepped)}
        return events


@pytest.mark.parametrize(
    "methods", [["ar", "goose", "auto"], pytest.param(MODELS, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("places", [2, 3])
def test_batches_are_replayed_like_live_ones(
    at: Stage, methods: list[str], places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a replay prompts are cached between steps.
    monkeypatch.setattr(type(at.host.target), "readable", lambda *_: False)
    at = fresh(at)
    recording = at.record([*PROMPTS, SHORT], temperature=0.8, max_new_tokens=9)
    settings, prompts = recording.settings, recording.prompts
    for spelt in methods:
        one = replay_method(method(spelt), recording.model.info())
        live = CountingEngine(at.host.target, one.method, max_batch=places, host=at.host)
        turns = [
            [
                Request(text.prompt, 9, SamplingParams(0.8, seed=prompt.seed), eos=settings.eos)
                for text in prompt.texts
            ]
            for prompt in prompts
        ]
        wanted = decode_together(live, turns, {})
        assert max(step.batch for step in wanted.steps) == places
        for host in (at.host, None):
            found = Replayer(recording, host, COSTS).replay_together(one, prompts, places)
            assert found.tokens == wanted.tokens
            assert [replace(step, levels={}) for step in found.steps] == wanted.steps, spelt
            made = [sum(map(len, step.levels.values())) for step in found.steps]
            assert made == live.draft_calls, spelt


def test_a_batch_that_lacks_a_row_says_so(at: Stage) -> None:
    recording = at.record(PROMPTS, max_new_tokens=4)
    one = replay_method(method("goose"), recording.model.info())
    with pytest.raises(MissingRowError, match=r"'goose' on batches of 2 prompts.*--model"):
        Replayer(recording).replay_together(one, recording.prompts, 2)


def test_prompts_of_one_context_are_not_decoded_together(at: Stage) -> None:
    recording = at.record([SHORT, SHORT], temperature=0.8, max_new_tokens=4)
    one = replay_method(method("ar"), recording.model.info())
    with pytest.raises(DraftwoodError, match="two prompts have the same context"):
        Replayer(recording).replay_together(one, recording.prompts, 2)


STEEP = StepCosts(Curve((1, 65), (0.010, 0.100)), {"draft": Curve((1, 2), (0.001, 0.001))})


def test_what_is_learnt_goes_on_from_prompt_to_prompt(
    at: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live on one host, and in each replay, of which none is taught twice by a prompt."""
    monkeypatch.setattr(estimator, "INTERVAL", 2)
    at = fresh(at, STEEP)
    recording = at.record(PROMPTS, max_new_tokens=9)
    spelt = "adaptive-chain:warmup=1:draft=embedded-draft"
    wanted = [lived(at, spelt, prompt, recording.settings) for prompt in recording.prompts]
    drafted = [[len(step.tokens) - 1 for step in steps] for steps in wanted]
    assert drafted[0][0] == 7, "a whole chain at first"
    assert max(drafted[1]) < 7, "of the last prompt all are cut"
    for host in (at.host, None):
        replayer = Replayer(recording, host, STEEP)
        runs = [replayed(replayer, spelt, prompt) for prompt in recording.prompts]
        assert [steps for steps, _ in runs] == wanted
        assert all(found.used_model == (host is not None) for _, found in runs)


@pytest.fixture(scope="module")
def recording(at: Stage) -> Recording:
    return at.record(PROMPTS)


def test_rows_of_rejected_nodes_are_missing_at_first(at: Stage, recording: Recording) -> None:
    prompt = recording.prompts[0]
    with pytest.raises(MissingRowError, match=r"'goose' on prompt 'code'.*--model"):
        replayed(Replayer(recording), "goose", prompt)
    _, found = replayed(Replayer(recording, at.host), "goose", prompt)
    assert found.used_model


@pytest.mark.parametrize("spelt", ["pld", "goose:adjacency.harvest=accepted"])
def test_methods_that_read_no_rejected_rows_need_no_model(
    at: Stage, recording: Recording, spelt: str
) -> None:
    size = recording.size
    for prompt in recording.prompts:
        steps, found = replayed(Replayer(recording), spelt, prompt)
        assert steps == lived(at, spelt, prompt, recording.settings)
        assert not found.used_model
    assert recording.size == size


@pytest.mark.parametrize("spelt", ["tr", "talon"])
def test_a_changed_row_changes_the_run(at: Stage, spelt: str) -> None:
    """Negative control: the recorded rows decide the trees."""
    recording = at.record(PROMPTS[:1])
    prompt, text = recording.prompts[0], recording.prompts[0].texts[0]
    wanted, _ = replayed(Replayer(recording, at.host), spelt, prompt)
    (table,) = text.drafts.values() if text.drafts else [text.rows]
    table.tokens[:, :2] = table.tokens[:, 1::-1].copy()
    # Recorded rows are used, not the model's.
    found, _ = replayed(Replayer(recording, at.host), spelt, prompt)
    assert found != wanted
