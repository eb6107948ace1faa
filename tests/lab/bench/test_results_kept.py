"""What is kept of a run, what is refused, and that the page says what the kept runs say."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftwood.lab.bench.quiet import LIMIT
from tests.lab.bench.kept_runs import (
    ORIGIN,
    RUNS,
    SCRIPT,
    keep,
    module,
    needs_runs,
    page,
    save,
    text,
    timed,
)

pytestmark = needs_runs

BUSY = {"share": 2 * LIMIT, "timed_share": 2 * LIMIT, "limit": LIMIT, "unknown": None}
METHODS = {"ar": timed(10, 10), "goose": timed(15, 15)}


def kept(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def test_the_page_in_the_repository_is_that_of_its_runs() -> None:
    """Made with ``python runs/results.py > docs/results.md``."""
    written = RUNS.parent / "docs" / "results.md"
    assert written.read_text(encoding="utf-8") == text(RUNS / "data")


def test_a_kept_run_has_no_directories_and_its_provenance_beside_it(tmp_path: Path) -> None:
    command = "draftwood bench --prompts /home/me/a.jsonl,/home/me/b.jsonl --json runs/out/x.json"
    sets = [{"file": "/home/me/a.jsonl", "sha256": "0"}]
    run = {
        "provenance": {**ORIGIN, "command": command, "prompts": sets, "at": "https://x.org/a/b"},
        "peak_memory": {"ar": {"peak_mb": 1.0, "tokens": 9}},
    }
    keep(tmp_path / "peak_memory.json", run, "paper_dynatree.sh memory")
    told = json.loads((tmp_path / "peak_memory.provenance.json").read_text())
    assert "/home" not in json.dumps(told)
    assert told["prompts"][0]["file"] == "a.jsonl"
    assert told["at"] == "https://x.org/a/b"
    assert told["made_by"] == {"script": "paper_dynatree.sh", "part": "memory"}
    found = kept(tmp_path / "peak_memory.json.gz")
    assert {"made_by": found["made_by"], **found["provenance"]} == told


def test_only_what_the_page_reads_is_kept(tmp_path: Path) -> None:
    save(tmp_path / "speed_greedy.json", METHODS)
    found = kept(tmp_path / "speed_greedy.json.gz")
    assert "excerpts" not in found
    entry = found["methods"]["goose"]
    assert not {"acceptance_by_rank", "by_task", "time_share"} & entry.keys()
    assert {"id", "ttft", "steps"}.isdisjoint(entry["rows"][0])
    assert len(entry["rows"]) == 2


def test_a_disturbed_run_is_kept_without_times(tmp_path: Path) -> None:
    save(tmp_path / "speed_greedy.json", METHODS, origin={**ORIGIN, "other_processes": BUSY})
    save(tmp_path / "draft_tau_t0.json", METHODS, origin={**ORIGIN, "other_processes": BUSY})
    for name in ("speed_greedy", "draft_tau_t0"):
        found = kept(tmp_path / f"{name}.json.gz")
        assert found["times"] is False
        for entry in found["methods"].values():
            for cut in (entry, entry["without_looping"], *entry["by_set"].values()):
                assert cut["tokens_per_second"]["median"] is None
                assert cut["speedup_vs_ar"]["median"] is None
            assert entry["rows"] == []
    shown = text(tmp_path)
    assert "- Speed: `runs/every_method.sh`" in shown
    # No tokens a second, no speed-up, no prediction from the run's times.
    assert "| - | - | - | - | - | - | - | - | 0% |" in shown


def test_times_of_a_disturbed_run_that_were_kept_by_hand_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "speed_greedy.json", METHODS)
    path = tmp_path / "speed_greedy.json.gz"
    found = kept(path)
    found["provenance"]["other_processes"] = BUSY
    path.write_bytes(gzip.compress(json.dumps(found).encode()))
    done = page(tmp_path)
    assert done.exit_code == 1
    assert "may not be printed: it has times, and other processes used 10%" in done.output


@pytest.mark.parametrize(
    ("origin", "part", "said"),
    [
        ({"git": {"commit": "a" * 40, "dirty": True}}, "equality.sh law", "changes beside"),
        ({"git": None}, "equality.sh law", "at which commit"),
        ({}, "equality.sh speed", "no part of a script in runs/"),
        ({}, "private.sh law", "no part of a script in runs/"),
    ],
)
def test_what_cannot_be_repeated_is_refused(
    tmp_path: Path, origin: dict[str, Any], part: str, said: str
) -> None:
    keep(tmp_path / "equality_law.json", {"provenance": {**ORIGIN, **origin}, "checks": []}, part)
    done = page(tmp_path)
    assert done.exit_code == 1
    assert said in done.output


def test_an_interrupted_run_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "speed_greedy.json", METHODS, extra={"complete": False})
    done = page(tmp_path)
    assert done.exit_code == 1
    assert "interrupted" in done.output


@pytest.mark.parametrize(
    ("member", "said"), [("verifying_ms", "other processes used 10%"), ("seconds", "nobody knows")]
)
def test_times_of_other_commands_are_known_and_refused(
    tmp_path: Path, member: str, said: str
) -> None:
    run = {"provenance": {**ORIGIN, "other_processes": BUSY}, member: {}}
    with pytest.raises(Exception, match=said):
        keep(tmp_path / "verifier_cost.json", run, "paper_traversal.sh cost")


def test_a_large_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("kept"), "LARGEST", 50)
    with pytest.raises(Exception, match="more than 50"):
        save(tmp_path / "speed_greedy.json", METHODS)


def results(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT.parent / "keep.py"), "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_results_are_kept_from_where_scripts_leave_them(tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    out.mkdir()
    run = {"provenance": ORIGIN, "peak_memory": {"ar": {"peak_mb": 512.0, "tokens": 9}}}
    (out / "peak_memory.json").write_text(json.dumps(run))
    (out / "peak_memory.part_of").write_text("paper_dynatree.sh memory\n")
    done = results(out, "--data", str(data))
    assert done.returncode == 0, done.stderr
    assert "| `ar` | 512 |" in text(data)

    (out / "other.part_of").write_text("paper_dynatree.sh memory\n")
    done = results(out, "--data", str(data), "other")
    assert done.returncode == 1
    assert "other: no file" in done.stderr
    (out / "other.json").write_text(json.dumps({**run, "provenance": {**ORIGIN, "git": None}}))
    done = results(out, "--data", str(data))
    assert done.returncode == 1
    assert "other is not kept: it does not say at which commit" in done.stderr
    assert not (data / "other.json.gz").exists()
