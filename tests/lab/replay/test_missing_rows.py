"""A replay asks the model for the rows that the recording lacks, and for no others."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay import extend
from draftwood.lab.replay.forward_log import ForwardLog
from draftwood.lab.replay.recording import Recording, Text
from draftwood.lab.replay.replayer import Replayer
from draftwood.lab.replay.rows import RankedRows
from tests.lab.replay.live_and_replayed import COSTS, Stage, lived, replayed, stage

PROMPTS = [Prompt("code", "code", "s", ("def add(a, b):\n    return a + b\n\ndef sub(a, b):\n",))]
TARGET_ROWS = ["tr", "goose:budget=9"]
DRAFT_ROWS = ["talon:budget=9", "eagle3:top_k=4:budget=12"]


@pytest.fixture(scope="module")
def at() -> Stage:
    return stage("embedded")


def without_last(table: RankedRows) -> RankedRows:
    """The table without its newest row."""
    n = len(table) - 1
    tokens, values = table.tokens[:n].copy(), table.values[:n].copy()
    return RankedRows(table.width, table.keys[:n], table.asked[:n], tokens, values)


def lose_a_row(text: Text) -> None:
    """Take the newest row from the recording: a draft's, if there are any."""
    if text.drafts:
        text.drafts = {name: without_last(table) for name, table in text.drafts.items()}
    else:
        text.rows = without_last(text.rows)


@contextmanager
def counted(at: Stage) -> Iterator[list[int]]:
    """The nodes of each forward of the target within the block."""
    target, found = at.host.target, list[int]()
    submit = target.submit

    def counting(slots: Any, trees: Any, *given: Any) -> Any:
        found.extend(len(tree) for tree in trees)
        return submit(slots, trees, *given)

    with patch.object(target, "submit", counting):
        yield found


def whole(at: Stage, spelt: str) -> Recording:
    """A recording with all rows that a method reads."""
    recording = at.record(PROMPTS, max_new_tokens=16)
    _, found = replayed(Replayer(recording, at.host, COSTS), spelt, recording.prompts[0])
    assert found.used_model
    return recording


@pytest.mark.parametrize("spelt", TARGET_ROWS + DRAFT_ROWS)
def test_only_the_missing_row_is_asked_for(at: Stage, spelt: str) -> None:
    recording = whole(at, spelt)
    prompt, size = recording.prompts[0], recording.size
    wanted = lived(at, spelt, prompt, recording.settings)
    with counted(at) as nodes:
        steps, found = replayed(Replayer(recording, at.host, COSTS), spelt, prompt)
    assert (steps, found.used_model, nodes) == (wanted, False, [])
    lose_a_row(prompt.texts[0])
    assert recording.size == size - 1
    with counted(at) as nodes:
        steps, found = replayed(Replayer(recording, at.host, COSTS), spelt, prompt)
    assert (steps, found.used_model) == (wanted, True)
    assert recording.size == size
    # What was committed before, in one chain; then the tree, if the row is the target's.
    assert 1 < nodes[0] < 16
    assert len(nodes) == (2 if spelt in TARGET_ROWS else 1)


@pytest.mark.parametrize("spelt", [TARGET_ROWS[0], DRAFT_ROWS[1]])
def test_long_text_is_caught_up_in_pieces(
    at: Stage, spelt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = whole(at, spelt)
    prompt = recording.prompts[0]
    wanted = lived(at, spelt, prompt, recording.settings)
    lose_a_row(prompt.texts[0])
    monkeypatch.setattr(extend, "_CHUNK", 3)
    with counted(at) as nodes:
        assert replayed(Replayer(recording, at.host, COSTS), spelt, prompt)[0] == wanted
    pieces = nodes[:-1] if spelt in TARGET_ROWS else nodes
    assert len(pieces) > 1
    assert set(pieces[:-1]) == {3}
    assert 1 <= pieces[-1] <= 3


def test_a_drafter_that_copies_beside_its_model_is_refused(
    at: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = at.record(PROMPTS, max_new_tokens=4)
    monkeypatch.setattr(ModelDrafter, "branches", lambda *_: [], raising=False)
    with pytest.raises(DraftwoodError, match="has a model and copies text"):
        replayed(Replayer(recording, at.host, COSTS), DRAFT_ROWS[0], recording.prompts[0])


def test_a_model_that_makes_further_forwards_is_refused(
    at: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = at.record(PROMPTS, max_new_tokens=4)
    monkeypatch.setattr(ForwardLog, "_count", lambda log, nodes: log._widths.append(nodes))
    with pytest.raises(DraftwoodError, match="made 1 forwards in a step where a replay counts 0"):
        replayed(Replayer(recording, at.host, COSTS), DRAFT_ROWS[0], recording.prompts[0])
