"""Datasets by name: parts of the name, choice of split, rows. The package datasets is a fake."""

import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.sources import dataset

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
    dataset.cache_clear()
    yield fake
    dataset.cache_clear()


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
    origin = dataset(source).origin
    assert (origin["config"], origin["split"], origin["revision"]) == (config, split, "c0ffee")
    assert library.loads == [("openai/gsm8k", loaded)]


def test_rows_have_their_place_and_no_null_members() -> None:
    found = dataset("hf:openai/gsm8k:main:test")
    assert [(r.where, r.number, r.values) for r in found.rows] == [
        ("hf:openai/gsm8k:main:test, row 1", 0, {"question": "q"}),
        ("hf:openai/gsm8k:main:test, row 2", 1, {"question": "é", "answer": "a"}),
    ]


def test_a_dataset_is_loaded_once_and_its_origin_is_recorded(library: Library) -> None:
    dataset("hf:openai/gsm8k")
    assert dataset("hf:openai/gsm8k").origin == {
        "dataset": "hf:openai/gsm8k",
        "config": "main",
        "split": "test",
        "revision": "c0ffee",
        # printf '{"question": "q"}\n{"answer": "a", "question": "é"}\n' | sha256sum
        "sha256": "ccee1115450f641c96bc845fd5abe597617cc0917a9dd430222d6509388c40cc",
    }
    assert len(library.loads) == 1


@pytest.mark.parametrize(
    ("source", "name"),
    [("hf:openai/gsm8k:main:test", "gsm8k"), ("hf:gsm8k", "gsm8k"), ("hf:/data/own/", "own")],
)
def test_names_are_without_owner(source: str, name: str) -> None:
    assert dataset(source).name == name


MALFORMED = ("hf:", "hf::main", "hf:a/b:", "hf:a/b::test", "hf:a:b:c:d")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        *((source, r"is no dataset: write hf:OWNER/NAME") for source in MALFORMED),
        ("hf:openai/gsm8k:dev", r"'dev', neither .*: its splits are train, test"),
        ("hf:openai/gsm8k:socratic:test", r"no 'test'.*: its splits are train$"),
        (
            "hf:openai/gsm8k:nope:test",
            r"^cannot read prompts from hf:openai/gsm8k:nope:test: BuilderConfig 'nope' not found",
        ),
    ],
)
def test_names_of_no_dataset_are_refused(source: str, complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        dataset(source)


def test_several_splits_without_a_test_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGS, "main", {"train": [], "validation": []})
    with pytest.raises(DraftwoodError, match="has no test: its splits are train, validation"):
        dataset("hf:openai/gsm8k")


@pytest.mark.parametrize("error", [ConnectionError("x"), RuntimeError("x"), LibraryError("x")])
def test_every_error_of_the_library_is_a_refusal(library: Library, error: Exception) -> None:
    library.error = error
    with pytest.raises(DraftwoodError, match="cannot read prompts from hf:a/b: x"):
        dataset("hf:a/b")


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "datasets", missing)
    with pytest.raises(
        DraftwoodError, match=r"needs datasets .*pip install 'draftwood\[datasets\]'"
    ):
        dataset("hf:a/b")


def test_versions_that_may_run_code_of_a_dataset_are_refused(library: Library) -> None:
    library.__version__ = "3.6.0"
    with pytest.raises(DraftwoodError, match="needs datasets 4 or later"):
        dataset("hf:a/b")
    assert library.loads == []
