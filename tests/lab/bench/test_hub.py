"""Datasets by name: parts of the name, choice of split, rows; the package datasets is a fake."""

import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench import hub

Table = list[dict[str, object]]
TEST: Table = [{"question": "q", "answer": None}, {"question": "é", "answer": "a"}]
MAIN: dict[str, Table] = {"train": [{"question": "t"}], "test": TEST}
SOCRATIC: dict[str, Table] = {"train": [{"question": "s"}]}
CONFIGS = {"main": MAIN, "socratic": SOCRATIC}


class LibraryError(Exception):
    """Stands for the errors of datasets."""


class Builder:
    def __init__(self, config: str) -> None:
        self.config = SimpleNamespace(name=config)
        self.info = SimpleNamespace(splits=None)
        self.hash = "c0ffee"

    def download_and_prepare(self) -> None:
        self.info.splits = dict.fromkeys(CONFIGS[self.config.name])

    def as_dataset(self, split: str) -> Table:
        return CONFIGS[self.config.name][split]


class Library(ModuleType):
    __version__ = "4.0.0"
    exceptions = SimpleNamespace(DatasetsError=LibraryError)

    def __init__(self) -> None:
        super().__init__("datasets")
        self.loads: list[tuple[str, str | None]] = []
        self.error: Exception | None = None

    def get_dataset_config_names(self, path: str) -> Sequence[str]:
        return list(CONFIGS)

    def load_dataset_builder(self, path: str, config: str | None) -> Builder:
        self.loads.append((path, config))
        if self.error is not None:
            raise self.error
        if config not in (None, *CONFIGS):
            raise ValueError(f"BuilderConfig {config!r} not\nfound.")
        return Builder(config or "main")


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    fake = Library()
    monkeypatch.setitem(sys.modules, "datasets", fake)
    hub.load.cache_clear()
    yield fake
    hub.load.cache_clear()


@pytest.mark.parametrize(
    ("source", "config", "split", "loaded"),
    [
        ("hf:openai/gsm8k", "main", "test", None),
        ("hf:openai/gsm8k:main", "main", "test", "main"),
        ("hf:openai/gsm8k:train", "main", "train", None),
        ("hf:openai/gsm8k:main:train", "main", "train", "main"),
        ("hf:openai/gsm8k:socratic", "socratic", "train", "socratic"),
    ],
)
def test_configuration_and_split(
    library: Library, source: str, config: str, split: str, loaded: str | None
) -> None:
    found = hub.load(source)
    assert (found.config, found.split, found.revision) == (config, split, "c0ffee")
    assert library.loads == [("openai/gsm8k", loaded)]


def test_rows_leave_out_what_is_null_and_know_their_place() -> None:
    found = hub.rows("hf:openai/gsm8k:main:test")
    assert [(r.where, r.number, r.values) for r in found] == [
        ("hf:openai/gsm8k:main:test, row 1", 0, {"question": "q"}),
        ("hf:openai/gsm8k:main:test, row 2", 1, {"question": "é", "answer": "a"}),
    ]


def test_rows_and_origin_are_of_one_loading(library: Library) -> None:
    hub.rows("hf:openai/gsm8k")
    assert hub.origin("hf:openai/gsm8k") == {
        "dataset": "hf:openai/gsm8k",
        "config": "main",
        "split": "test",
        "revision": "c0ffee",
        # printf '{"question": "q"}\n{"answer": "a", "question": "é"}\n' | sha256sum
        "sha256": "ccee1115450f641c96bc845fd5abe597617cc0917a9dd430222d6509388c40cc",
    }
    assert len(library.loads) == 1


def test_names_are_without_owner() -> None:
    assert hub.name("hf:openai/gsm8k:main:test") == "gsm8k"
    assert hub.name("hf:gsm8k") == "gsm8k"
    assert hub.name("hf:/data/own/") == "own"


@pytest.mark.parametrize("source", ["hf:", "hf::main", "hf:a/b:", "hf:a/b::test", "hf:a:b:c:d"])
def test_refuses_malformed_names(source: str) -> None:
    with pytest.raises(DraftwoodError, match=r"is no dataset: write hf:OWNER/NAME"):
        hub.rows(source)


def test_refuses_splits_that_are_not_there() -> None:
    with pytest.raises(DraftwoodError, match=r"'dev', neither .*: its splits are train, test"):
        hub.rows("hf:openai/gsm8k:dev")
    with pytest.raises(DraftwoodError, match=r"no 'test'.*: its splits are train$"):
        hub.rows("hf:openai/gsm8k:socratic:test")


def test_refuses_several_splits_without_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGS, "main", {"train": [], "validation": []})
    with pytest.raises(DraftwoodError, match="has no test: its splits are train, validation"):
        hub.rows("hf:openai/gsm8k")


def test_says_in_one_line_what_the_library_says() -> None:
    with pytest.raises(DraftwoodError) as caught:
        hub.rows("hf:openai/gsm8k:nope:test")
    assert str(caught.value) == (
        "cannot read prompts from hf:openai/gsm8k:nope:test: BuilderConfig 'nope' not found."
    )


@pytest.mark.parametrize("error", [ConnectionError("x"), RuntimeError("x"), LibraryError("x")])
def test_refusals_of_the_library(library: Library, error: Exception) -> None:
    library.error = error
    with pytest.raises(DraftwoodError, match="cannot read prompts from hf:a/b: x"):
        hub.rows("hf:a/b")


def test_says_how_to_install_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "datasets", missing)
    with pytest.raises(
        DraftwoodError, match=r"needs datasets .*pip install 'draftwood\[datasets\]'"
    ):
        hub.rows("hf:a/b")


def test_refuses_versions_that_may_run_code_of_a_dataset(library: Library) -> None:
    library.__version__ = "3.6.0"
    with pytest.raises(DraftwoodError, match="needs datasets 4 or later"):
        hub.rows("hf:a/b")
    assert library.loads == []
