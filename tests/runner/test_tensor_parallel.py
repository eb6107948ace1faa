"""A model that transformers has divided between two processes decodes as in one."""

from pathlib import Path
from typing import Any

import pytest

from tests.factories.tensor_parallel import METHODS, REQUESTS, decoded, save_odd

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("accelerate")  # which transformers needs to divide a model
    found = tmp_path_factory.mktemp("divided")
    save_odd(found)
    return found


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    """What one process gets."""
    [result] = decoded(folder, 1)
    return result


def tokens(result: dict[str, Any]) -> dict[str, Any]:
    """The tokens of the requests, by method."""
    return {name: [each[0] for each in result[name]] for name in METHODS}


def test_two_processes_decode_what_one_does(folder: Path, alone: dict[str, Any]) -> None:
    """Although their clocks differ, which decides how much ``auto`` drafts."""
    first, second = decoded(folder, 2)
    assert first == second
    assert tokens(first) == tokens(alone)
    plain = tokens(first)["ar"]
    for name, found in tokens(first).items():
        same = 2 if name == "traversal" else len(REQUESTS)  # above temperature 0 it draws others
        assert found[:same] == plain[:same], name
        most = max(each[1] for each in first[name])
        assert most > 1.1 or name in {"ar", "auto"}, name  # auto: if that pays on this machine
    for name in ("before a prefix is kept", "after it"):
        assert [each[0] for each in first[name]] == plain
    for name in ("generate", "detached", "sampled", "odd"):
        assert first[name] == alone[name], name
    assert first["generate"] == first["detached"]


def test_processes_that_come_apart_are_stopped(folder: Path, alone: dict[str, Any]) -> None:
    for result in decoded(folder, 2, "flawed"):
        assert "not at the same tokens" in result["seeds"]
        assert "not at the same tokens" in result["times"]
        plain = [each[0] for each in result["ar"]]
        assert plain != tokens(alone)["ar"], "wrong sums give other tokens"
