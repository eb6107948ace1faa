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


def without(table: RankedRows, *rows: int) -> RankedRows:
    """The table without some of its rows."""
    kept = [row for row in range(len(table)) if row not in rows]
    keys, asked = ([values[row] for row in kept] for values in (table.keys, table.asked))
    return RankedRows(table.width, keys, asked, table.tokens[kept], table.values[kept])


def lose(text: Text, *, newest_only: bool = True) -> int:
    """Take the newest row from the recording, and one of a middle step; returns how many.

    It is a draft's, if there are any.
    """
    if text.drafts:
        [(name, table)] = text.drafts.items()
        rows = {len(table) - 1} if newest_only else {len(table) // 2, len(table) - 1}
        text.drafts = {name: without(table, *rows)}
    else:
        # The first rows are those of the text itself.
        own = len(text.paths.main)
        rows = {len(text.rows) - 1} if newest_only else {own, len(text.rows) - 1}
        text.rows = without(text.rows, *rows)
    return len(rows)


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
    assert lose(prompt.texts[0]) == 1
    assert recording.size == size - 1
    with counted(at) as nodes:
        steps, found = replayed(Replayer(recording, at.host, COSTS), spelt, prompt)
    assert (steps, found.used_model) == (wanted, True)
    assert recording.size == size
    # What was committed before, in one chain; then the tree, if the row is the target's.
    assert 1 < nodes[0] < 16
    assert len(nodes) == (2 if spelt in TARGET_ROWS else 1)


@pytest.mark.parametrize("spelt", [TARGET_ROWS[0], *DRAFT_ROWS])
def test_the_model_is_asked_again_after_some_steps(at: Stage, spelt: str) -> None:
    recording = whole(at, spelt)
    prompt, size = recording.prompts[0], recording.size
    wanted = lived(at, spelt, prompt, recording.settings)
    assert lose(prompt.texts[0], newest_only=False) == 2
    assert recording.size == size - 2
    with counted(at) as nodes:
        steps, found = replayed(Replayer(recording, at.host, COSTS), spelt, prompt)
    assert (steps, found.used_model, recording.size) == (wanted, True, size)
    assert len(nodes) >= (3 if spelt in TARGET_ROWS else 2)


@pytest.mark.parametrize("spelt", [TARGET_ROWS[0], DRAFT_ROWS[1]])
def test_long_text_is_caught_up_in_pieces(
    at: Stage, spelt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = whole(at, spelt)
    prompt = recording.prompts[0]
    wanted = lived(at, spelt, prompt, recording.settings)
    lose(prompt.texts[0])
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
    for _ in range(2):  # the second replay finds no rows of the first one
        with pytest.raises(DraftwoodError, match=r"made 1 forwards in a step where a .* counts 0"):
            replayed(Replayer(recording, at.host, COSTS), DRAFT_ROWS[0], recording.prompts[0])
