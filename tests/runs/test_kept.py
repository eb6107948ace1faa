"""Figures of long runs are kept, so that a call goes on where the last one stopped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.file import read, write
from runs.smollm2 import kept
from runs.smollm2.kept import Kept, KeptReplays
from tests.lab.replay.live_and_replayed import stage


@pytest.fixture(autouse=True)
def at_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "git_state", lambda _: {"commit": "a", "dirty": False})


@pytest.fixture
def find() -> Callable[[], int]:
    """A figure that takes long: which call this is."""
    calls = iter(range(100))
    return lambda: next(calls)


def test_what_has_been_found_is_not_found_again(tmp_path: Path, find: Callable[[], int]) -> None:
    path = tmp_path / "kept.json"
    first = Kept(path, {"head": None})
    assert [first.once("a", find), first.once("b", find), first.once("a", find)] == [0, 1, 0]
    later = Kept(path, {"head": None})
    assert [later.once("b", find), later.once("c", find)] == [1, 2]


def test_other_settings_are_another_question(tmp_path: Path, find: Callable[[], int]) -> None:
    path = tmp_path / "kept.json"
    assert Kept(path, {"head": None}).once("a", find) == 0
    assert Kept(path, {"head": "other"}).once("a", find) == 1
    assert Kept(path, {"head": None}).once("a", find) == 2


@pytest.mark.parametrize("state", [{"commit": "b", "dirty": False}, {"commit": "a", "dirty": True}])
def test_other_code_finds_all_anew(
    state: dict[str, object],
    tmp_path: Path,
    find: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "kept.json"
    assert Kept(path, {}).once("a", find) == 0
    monkeypatch.setattr(kept, "git_state", lambda _: state)
    assert Kept(path, {}).once("a", find) == 1


def test_new_rows_of_a_recording_are_written_with_the_figure(
    tmp_path: Path, find: Callable[[], int]
) -> None:
    path = tmp_path / "tiny.rec"
    prompts = [Prompt("add", "code", "add", ("def add(a, b):\n    return",))]
    write(path, stage("embedded").record(prompts, max_new_tokens=4))
    recording = read(path)
    before = path.stat().st_mtime_ns

    def replay() -> int:
        [text] = recording.prompts[0].texts
        node = text.paths.insert(0, [0, 7], [-1, 0])[1]
        text.rows.put([node], 1, np.array([[3]]), np.array([[0.5]], dtype=np.float32))
        return find()

    replays = KeptReplays("rivals", path, recording, {"head": None})
    assert replays.once("plain", find) == 0
    assert path.stat().st_mtime_ns == before
    assert replays.once("tree", replay) == 1
    assert read(path).size == recording.size
    # The rows do not make it another recording.
    assert KeptReplays("rivals", path, read(path), {"head": None}).once("tree", find) == 1
    other = read(path)
    other.prompts[0].texts[0].paths.main[-1] += 1
    assert KeptReplays("rivals", path, other, {"head": None}).once("tree", find) == 2
