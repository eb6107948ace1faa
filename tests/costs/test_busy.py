"""CPU usage of other processes, from given counters and from the system's."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from draftwood import cli, models
from draftwood.costs import busy
from draftwood.costs.busy import (
    Counters,
    Others,
    advice,
    counters,
    total_usage,
    usage_between,
    watched,
)
from draftwood.errors import DraftwoodError

STAT = "cpu  9 9 9 9 9 9 9 9 9 9\n{cores}intr 1 2 3\n"


def stat(at: Path, cores: dict[int, str]) -> Path:
    lines = "".join(f"cpu{number} {line}\n" for number, line in cores.items())
    (at / "stat").write_text(STAT.format(cores=lines))
    return at / "stat"


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _: 100)


@pytest.mark.usefixtures("two_cores")
def test_idle_and_waiting_time_and_cores_of_others_do_not_count(tmp_path: Path) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice; a guest is in user already
    file = stat(
        tmp_path,
        {
            0: "100 10 20 999 500 1 2 7 50 5",
            1: "60 0 0 999 500 0 0 0 0 0",
            2: "9999 0 0 0 0 0 0 0 0 0",
        },
    )
    found = counters(file)
    assert found is not None
    assert found.busy == pytest.approx(2.0)
    assert found.cores == 2


@pytest.mark.usefixtures("two_cores")
def test_they_are_unknown_without_a_file_and_where_a_sandbox_shows_zeros(tmp_path: Path) -> None:
    assert counters(tmp_path / "none") is None
    assert counters(stat(tmp_path, {0: "0 " * 10, 1: "0 " * 10})) is None


def test_own_time_is_subtracted() -> None:
    before = Counters(time=10.0, busy=100.0, own=5.0, cores=2)
    after = Counters(time=20.0, busy=116.0, own=14.0, cores=2)
    found = usage_between(before, after)
    assert found == Others(seconds=7.0, available=20.0)
    assert found.share == pytest.approx(0.35)
    assert usage_between(None, after) is None
    assert usage_between(before, None) is None
    # A tick may be counted a moment late.
    assert Others(-0.01, 2.0).share == 0.0


def test_periods_add_up_and_one_unknown_makes_the_sum_unknown() -> None:
    found = total_usage([Others(1.0, 2.0), Others(0.0, 8.0)])
    assert found == Others(1.0, 10.0)
    assert total_usage([Others(1.0, 2.0), None]) is None
    assert total_usage([]) is None


@pytest.mark.parametrize(
    ("taken", "threads", "said"),
    [
        (0.0, 2, None),
        (0.4, 2, None),
        (1.0, 1, None),
        (1.0, 2, "try --threads 1,"),
        (6.3, 8, "try --threads 1,"),
        (2.0, 1, "; wait until they have ended"),
    ],
)
def test_the_advice_fits_the_free_cores(taken: float, threads: int, said: str | None) -> None:
    cores = 2 if taken < 5 else 8
    found = advice(taken, cores, threads)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert said in found
        assert f"{taken:.1f} of the {cores} cores" in found


def test_without_counters_the_load_average_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "counters", lambda: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0, 0.0, 0.0), raising=False)
    assert "using 4.0 of the 2 cores" in str(busy.warning(2))
    monkeypatch.setattr(os, "getloadavg", lambda: (1.9, 9.0, 9.0), raising=False)
    assert busy.warning(2) is None


def test_a_running_process_is_seen_and_our_own_work_is_not() -> None:
    if counters() is None:
        pytest.skip("this system does not tell what its cores do")
    program = "import time; end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        time.sleep(0.1)
        with watched() as found:
            end = time.process_time() + 0.5
            while time.process_time() < end:
                pass
    finally:
        child.kill()
        child.wait()
    assert found.others is not None
    # Others on this machine may take more; half a second of our own is not among it.
    assert found.others.seconds > 0.2
    before, after = counters(), counters()
    assert before is not None
    assert after is not None
    assert after.own >= 0.5


@pytest.mark.parametrize("command", ["demo", "bench", "tune"])
def test_timing_commands_warn_before_they_begin(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "warning", lambda threads: f"no room for {threads}")
    monkeypatch.setattr(models.loading, "load", _refuse)
    # The benchmark has loaded everything by then, so that bad input is refused in one line.
    monkeypatch.setattr("draftwood.lab.bench.session.Session", lambda *_: Loaded())
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"id": "a", "task": "t", "prompt": "abc"}')
    given = {"bench": ["--prompts", str(prompts)], "demo": ["--model", "embedded"]}.get(command, [])
    with CliRunner().isolation() as streams, pytest.raises(SystemExit):
        cli.main([command, *given, "--threads", "3"])
    said = streams[1].getvalue().decode()
    assert "warning: no room for 3" in said
    assert "not loaded" in said


class Loaded:
    """A session that refuses as soon as it is asked for anything."""

    @property
    def missing(self) -> dict[str, str]:
        raise DraftwoodError("not loaded")


def _refuse(*_: object, **__: object) -> None:
    raise DraftwoodError("not loaded")
