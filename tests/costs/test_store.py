"""Kept costs: found again, measured anew where a file is not what it should be."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from draftwood.costs import store
from draftwood.costs.busy import Others, Watched
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.store import CostsKey, device_name, identity_at, key_of
from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE
from draftwood.protocols import TargetInfo

COSTS = StepCosts(Curve((1, 2), (1.0, 2.0)), {"draft": Curve((1, 2), (0.5, 0.5))}, 0.1)
KEY = CostsKey("m", (("draft", "d"),), "cpu", "float32", 2, ("rows",), "k", "2.0", "0.1")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "costs"


def never() -> StepCosts:
    raise AssertionError("measured again")


def test_what_is_written_is_read(directory: Path) -> None:
    assert store.read(KEY) is None
    path = store.write(KEY, COSTS)
    assert path.parent == directory
    assert store.read(KEY) == COSTS
    assert store.read_or_measure(KEY, never) == COSTS
    assert json.loads(path.read_text())["about"] == (
        "cpu, 2 threads, float32: 1e+03 ms for one token, with a draft"
    )
    assert [p.name for p in directory.iterdir()] == [path.name]


def test_every_part_of_the_key_counts() -> None:
    store.write(KEY, COSTS)
    others = [
        replace(KEY, model="other"),
        replace(KEY, drafters=()),
        replace(KEY, device="other"),
        replace(KEY, dtype="bfloat16"),
        replace(KEY, threads=7),
        replace(KEY, layouts=()),
        replace(KEY, kernels=""),
        replace(KEY, torch="3.0"),
        replace(KEY, draftwood="0.2"),
    ]
    assert len(others) == len(fields(CostsKey))
    assert [store.read(other) for other in others] == [None] * len(others)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"key": 1, "value": 2}', "\xff"])
@pytest.mark.usefixtures("neighbours")
def test_a_broken_file_is_ignored_with_a_warning(
    content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.write(KEY, COSTS)
    path.write_bytes(content.encode("latin-1"))
    other = StepCosts(Curve((1, 2), (3.0, 4.0)))
    with caplog.at_level(logging.WARNING):
        assert store.read_or_measure(KEY, lambda: other) == other
    assert "is not used" in caplog.text
    assert store.read_or_measure(KEY, never) == other


def test_a_file_of_another_version_or_owner_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    path = store.write(KEY, COSTS)
    good = json.loads(path.read_text())
    path.write_text(json.dumps({**good, "value": {**good["value"], "version": 99}}))
    assert store.read(KEY) is None
    path.write_text(json.dumps({**good, "key": {**good["key"], "device": "another"}}))
    assert store.read(KEY) is None
    assert "belongs to something else" in caplog.text
    path.write_text(json.dumps(good))
    assert store.read(KEY) == COSTS


@pytest.fixture
def neighbours(monkeypatch: pytest.MonkeyPatch) -> Others:
    """The usage of other processes that the counters report."""
    found = Others(0.0, 1.0)

    @contextmanager
    def watched() -> Iterator[Watched]:
        yield Watched(found)

    monkeypatch.setattr(store, "watched", watched)
    return found


@pytest.mark.parametrize(("seconds", "is_kept"), [(0.0, True), (0.09, True), (0.5, False)])
def test_costs_measured_on_a_busy_machine_are_not_cached(
    neighbours: Others, seconds: float, is_kept: bool, directory: Path
) -> None:
    object.__setattr__(neighbours, "seconds", seconds)
    assert store.read_or_measure(KEY, lambda: COSTS) == COSTS
    assert directory.is_dir() == is_kept


def test_a_cache_that_cannot_be_written_only_warns(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    neighbours: Others,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(DraftwoodError, match=r"cannot cache costs in .*DRAFTWOOD_CACHE"):
        store.write(KEY, COSTS)
    assert neighbours.share == 0.0
    assert store.read_or_measure(KEY, lambda: COSTS) == COSTS
    assert "cannot cache costs" in caplog.text


def test_the_identity_depends_on_the_config_but_not_the_path() -> None:
    small, large = LlamaConfig(hidden_size=64), LlamaConfig(hidden_size=128)
    moved = LlamaConfig(hidden_size=64)
    moved._name_or_path = "/somewhere/else"
    identity = store.identity(small.to_dict())
    assert identity == store.identity(moved.to_dict())
    assert identity != store.identity(large.to_dict())


def test_the_key_of_a_live_target() -> None:
    info = TargetInfo(
        13, 64, 1, 1, torch.device("cpu"), torch.bfloat16, layouts=("rows",), kernels="k"
    )
    key = key_of(info, {"b": "2", "a": "1"})
    assert key.dtype == "bfloat16"
    assert (key.layouts, key.kernels) == (("rows",), "k")
    assert key.drafters == (("a", "1"), ("b", "2"))
    assert key.threads == torch.get_num_threads()
    assert key.device == device_name(torch.device("cpu"))


def test_the_identity_of_a_directory_is_its_configurations(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 3, "_name_or_path": "x"}')
    assert identity_at(str(tmp_path)) == store.identity({"hidden_size": 3})
    assert identity_at("owner/name") != identity_at("owner/other")
