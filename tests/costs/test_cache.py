"""Cached measurements: listed, cleared, and the command that does so."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from draftwood.cli.cache import cache
from draftwood.costs.cache import directory, entries, read, write
from draftwood.files import CACHE_VARIABLE


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return tmp_path


def listed(*argv: str) -> str:
    outcome = CliRunner().invoke(cache, argv, catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.output


def test_every_file_belongs_to_its_key() -> None:
    write("costs", {"model": "a", "threads": 2}, [1], "a model")
    assert read("costs", {"model": "a", "threads": 2}) == [1]
    assert read("costs", {"model": "a", "threads": 3}) is None
    assert read("layouts", {"model": "a", "threads": 2}) is None


def test_an_empty_cache_lists_nothing(place: Path) -> None:
    assert listed() == f"0 entries in {place}\n"
    assert "deleted 0 entries" in listed("--clear")


def test_the_command_lists_and_clears() -> None:
    write("costs", {"model": "a"}, 1, "model a")
    write("costs", {"model": "b"}, 1, "model b")
    broken = write("layouts", {"model": "a"}, 1, "layouts of a")
    broken.write_text("{")
    text = listed()
    assert "model a" in text
    assert "model b" in text
    assert "not readable" in text
    assert "model a" not in listed("--kind", "layouts")
    assert "deleted 2 entries" in listed("--clear", "--kind", "costs")
    assert [one.kind for one in entries()] == ["layouts"]
    library = broken.parent.parent / "compiled" / "rows-0.so"
    library.parent.mkdir()
    library.touch()
    assert "rows" in listed("--kind", "compiled")
    assert "deleted 1 entry from" in listed("--clear", "--kind", "compiled")
    assert not library.exists()
    assert "deleted 1 entry from" in listed("--clear")
    assert list(entries()) == []


def test_files_of_others_are_neither_listed_nor_deleted(place: Path) -> None:
    ours = write("costs", {"model": "a"}, 1, "model a")
    foreign = [
        place / "mine.json",
        place / "other" / "mine.json",
        place / "other" / ours.name,
        place / "costs" / "mine.json",
        place / "costs" / f"{24 * 'a'}.json",
        place / "layouts" / f"{24 * 'b'}.json",
    ]
    for path, text in zip(
        foreign, [*4 * ['{"key": 1, "value": 2}'], '{"key": 1}', "[]"], strict=True
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert [one.path for one in entries()] == [ours]
    assert "deleted 1 entry from" in listed("--clear")
    assert all(path.exists() for path in foreign)
    assert not ours.exists()


def test_another_kind_is_refused() -> None:
    outcome = CliRunner().invoke(cache, ["--kind", "other"])
    assert outcome.exit_code == 2
    assert "'costs', 'layouts'" in outcome.output


def test_without_the_variable_the_users_cache_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_VARIABLE)
    found = directory("costs")
    assert found.name == "costs"
    assert "draftwood" in found.parts
