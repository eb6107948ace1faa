"""``draftwood --version`` names what a report of a bug needs."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest
import torch

import draftwood
from draftwood.costs import environment
from draftwood.costs.environment import Fact, facts, usable_cores
from tests.factories.command_line import output_of


def fact(name: str) -> str:
    [found] = [fact.value for fact in facts() if fact.name == name]
    return found


def test_the_first_line_is_the_version_and_facts_follow() -> None:
    first, *others = output_of("--version").splitlines()
    assert first == f"draftwood, version {draftwood.__version__}"
    assert others == [f"{name}: {value}" for name, value in facts()]
    assert [name for name, _ in facts()] == [
        *("Python", "torch", "transformers"),
        *("device", "platform"),
    ]


def test_versions_are_those_that_are_installed() -> None:
    assert fact("Python").startswith(platform.python_version())
    assert fact("torch") == version("torch")
    assert fact("transformers") == version("transformers")


def test_a_cpu_is_named_with_its_cores_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(environment, "cpu_model", lambda: "Processor X")
    cores = f"{usable_cores()} of {os.cpu_count()} cores"
    assert fact("device") == f"CPU, Processor X, {cores}, {torch.get_num_threads()} threads"


def test_all_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", "GPU {}".format)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert fact("device") == "cuda:0, GPU 0; cuda:1, GPU 1 (CUDA 13.0)"


def test_libraries_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(environment, "version", missing)
    assert Fact("torch", "not installed") in facts()
    assert "; torch cannot be imported: import of torch halted" in fact("device")
