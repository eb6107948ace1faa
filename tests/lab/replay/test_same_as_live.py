"""Replays come to the very steps of live runs, with and without the model's help."""

import pytest

from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.recording import MissingRowError, Recording
from draftwood.lab.replay.replayer import Replayer
from tests.lab.replay.live_and_replayed import COSTS, Stage, lived, replayed, stage

CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n"
PROMPTS = [
    Prompt("code", "code", "s", (CODE,)),
    Prompt("talk", "chat", "s", ("Tell me about dogs.", "And about cats?"), dialogue=True),
]
# Budgets named twice were not recorded before: the second one is played over what the first left.
TABLES = ["ar", "pld", "tr", "iso3", "goose", "goose:budget=9", "auto"]
MODELS = ["sd", "talon", "talon:budget=9", "dynatree", "eagle3:top_k=4:budget=12", "goose-eagle3"]


@pytest.fixture(scope="module")
def at() -> Stage:
    return stage("embedded")


@pytest.mark.parametrize(("methods", "tokens"), [(TABLES, 12), (MODELS, 7)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_method_replays_as_it_lives(
    at: Stage, methods: list[str], tokens: int, temperature: float
) -> None:
    recording = at.record(PROMPTS, temperature=temperature, max_new_tokens=tokens)
    replayer = Replayer(recording, at.live, COSTS)
    alone = Replayer(recording, costs=COSTS)
    for spelt in methods:
        for prompt in recording.prompts:
            wanted = lived(at, spelt, prompt, recording.asked)
            first, _ = replayed(replayer, spelt, prompt)
            assert first == wanted, (spelt, prompt.id)
            size = recording.size
            second, found = replayed(alone, spelt, prompt)
            assert second == wanted, (spelt, prompt.id)
            assert not found.live
            assert recording.size == size


@pytest.fixture(scope="module")
def recording(at: Stage) -> Recording:
    return at.record(PROMPTS)


def test_what_rejected_nodes_teach_is_missing_at_first(at: Stage, recording: Recording) -> None:
    prompt = recording.prompts[0]
    with pytest.raises(MissingRowError, match=r"'goose' on prompt 'code'.*--model"):
        replayed(Replayer(recording), "goose", prompt)
    _, found = replayed(Replayer(recording, at.live), "goose", prompt)
    assert found.live


@pytest.mark.parametrize("spelt", ["pld", "goose:adjacency.harvest=accepted"])
def test_who_reads_no_rejected_row_never_needs_the_model(
    at: Stage, recording: Recording, spelt: str
) -> None:
    size = recording.size
    for prompt in recording.prompts:
        steps, found = replayed(Replayer(recording), spelt, prompt)
        assert steps == lived(at, spelt, prompt, recording.asked)
        assert not found.live
    assert recording.size == size


@pytest.mark.parametrize("spelt", ["tr", "talon"])
def test_an_altered_row_makes_another_run(at: Stage, spelt: str) -> None:
    """The negative control: the recorded rows are what decides the trees."""
    recording = at.record(PROMPTS[:1])
    prompt, text = recording.prompts[0], recording.prompts[0].texts[0]
    wanted, _ = replayed(Replayer(recording, at.live), spelt, prompt)
    (table,) = text.drafts.values() if text.drafts else [text.rows]
    table.tokens[:, :2] = table.tokens[:, 1::-1].copy()
    # What is recorded counts, whatever the model says now.
    found, _ = replayed(Replayer(recording, at.live), spelt, prompt)
    assert found != wanted
