"""What the doctor says of a machine."""

from pathlib import Path

import pytest
import torch

from draftwood.files import CACHE_VARIABLE
from draftwood.kernels.compiled import VARIABLE
from draftwood.lab.doctor import machine

CPU = torch.device("cpu")


def test_this_machine_is_named() -> None:
    found = {each.name: each for each in machine.machine_findings(CPU, 1)}
    assert list(found) == [
        *("versions", "device", "threads", "kernels", "other load", "free memory", "cache"),
    ]
    assert f"torch {torch.__version__}" in found["versions"].text
    assert "(cpu)" in found["device"].text
    assert found["threads"].text.startswith("1 for ")
    assert found["cache"].state == "ok"


def test_more_threads_than_cores_are_a_warning() -> None:
    assert machine.threads_finding(4, 4).state == "ok"
    found = machine.threads_finding(5, 4)
    assert found.state == "warning"
    assert found.advice[0].command == "draftwood doctor --threads 4"
    [named] = machine.threads_finding(5, 4, "smollm2").advice
    assert named.command == "draftwood doctor smollm2 --threads 4"


@pytest.mark.parametrize(
    ("version", "system", "environment", "lacking", "state", "words"),
    [
        ("1f", "linux", {}, "", "ok", "compiled"),
        ("", "linux", {}, "", "note", "C++ compiler"),
        ("", "linux", {}, "no OpenMP", "note", "not used: no OpenMP"),
        ("", "linux", {VARIABLE: "off"}, "no OpenMP", "note", f"unset {VARIABLE}"),
        ("", "darwin", {}, "no OpenMP", "ok", "none for this system"),
    ],
)
def test_kernels(
    version: str, system: str, environment: dict[str, str], lacking: str, state: str, words: str
) -> None:
    found = machine.kernels_finding(version, system, environment, lacking=lacking)
    assert found.state == state
    advice = [part for each in found.advice for part in (each.text, each.command)]
    assert words in " ".join([found.text, *advice])
    assert all(each.command for each in found.advice)


@pytest.mark.parametrize(
    ("installed", "compiler", "state", "words"),
    [
        ("3.6.0", "/usr/bin/gcc", "ok", "Triton 3.6.0"),
        ("", "/usr/bin/gcc", "warning", "pip install triton"),
        ("3.6.0", None, "warning", "CC=COMPILER draftwood doctor BIG"),
    ],
)
def test_triton(installed: str, compiler: str | None, state: str, words: str) -> None:
    found = machine.triton_finding(installed, compiler, "BIG")
    assert found.state == state
    assert words in " ".join([found.text, *(each.command for each in found.advice)])


def test_a_gpu_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "device_name", lambda _device: "a GPU")
    monkeypatch.setattr(machine, "free_memory", lambda _device: None)
    monkeypatch.setattr(machine, "triton_version", lambda: "")
    found = {e.name: e for e in machine.machine_findings(torch.device("cuda"), None)}
    assert found["kernels"].text.startswith("no Triton")
    assert "threads" not in found


def test_load_by_others_is_a_warning() -> None:
    assert machine.load_finding(None).state == "ok"
    found = machine.load_finding("other processes are using 2 of the 2 cores", "BIG")
    assert (found.state, found.text) == ("warning", "other processes are using 2 of the 2 cores")
    assert [each.command for each in found.advice] == ["draftwood doctor BIG"]


def test_a_cache_that_can_be_written_to_is_left_empty(tmp_path: Path) -> None:
    assert machine.cache_finding(tmp_path / "cache").state == "ok"
    assert not list((tmp_path / "cache").iterdir())


def test_a_cache_that_cannot_be_written_to_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = machine.cache_finding(tmp_path / "file" / "cache")
    assert found.state == "warning"
    assert found.advice[0].command == f"{CACHE_VARIABLE}=DIRECTORY draftwood doctor"
