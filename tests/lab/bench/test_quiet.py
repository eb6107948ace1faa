"""Times of a run are published only if the machine was quiet while they were taken."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from draftwood.costs import busy
from draftwood.costs.busy import Counters, Others
from draftwood.lab.bench.quiet import LIMIT, objection, recorded, warning
from tests.factories.bench_command import bench as run_bench
from tests.factories.bench_command import two_sets
from tests.factories.tiny_llama import save_tiny


def document(timed: Others | None, whole: Others | None) -> dict[str, Any]:
    return {"provenance": {"other_processes": recorded(timed, whole)}}


def used(share: float) -> Others:
    return Others(share * 20, 20.0)


@pytest.mark.parametrize(
    ("timed", "whole", "fine"),
    [
        (used(0.0), used(0.0), True),
        (used(0.049), used(0.4), True),
        (used(0.051), used(0.0), False),
        (None, used(0.01), True),
        (None, used(0.2), False),
        (None, None, False),
    ],
)
def test_the_timed_part_decides(timed: Others | None, whole: Others | None, fine: bool) -> None:
    assert (objection(document(timed, whole)) is None) is fine


def test_an_older_document_does_not_tell() -> None:
    assert "does not record" in str(objection({"provenance": {}}))
    assert warning({}) is None


def test_what_is_unknown_is_null_with_its_reason() -> None:
    found = recorded(None, None)
    assert found == {
        "share": None,
        "timed_share": None,
        "limit": LIMIT,
        "unknown": found["unknown"],
    }
    assert "/proc/stat" in str(found["unknown"])
    assert recorded(used(0.5), used(0.25))["unknown"] is None


def test_a_disturbed_run_is_warned_of() -> None:
    assert "12%" in str(warning(document(used(0.12), used(0.0))["provenance"]))
    assert warning(document(used(0.01), used(0.5))["provenance"]) is None


def test_a_run_records_it_and_says_so_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second of wall-clock time from one look to the next, in which others use half a core.
    seconds = count()
    monkeypatch.setattr(
        busy, "counters", lambda: Counters(t := float(next(seconds)), busy=t / 2, own=0.0, cores=2)
    )
    out, page = tmp_path / "x.json", tmp_path / "x.html"
    model = str(save_tiny(tmp_path / "tiny"))
    argv = ["--prompts", two_sets(tmp_path), "--limit", "1", "--model", model, "--methods", "ar"]
    code, _, err = run_bench(*argv, "--json", str(out), "--html", str(page))
    assert code == 0, err
    found = json.loads(out.read_text())
    assert found["provenance"]["other_processes"]["timed_share"] == pytest.approx(0.25)
    assert found["provenance"]["other_processes"]["share"] == pytest.approx(0.25)
    assert [row["other_processes"] for row in found["methods"]["ar"]["rows"]] == [0.25, 0.25]
    assert "other processes used 25%" in str(objection(found))
    for said in (" ".join(err.split()), page.read_text()):
        assert "Other processes used 25% of the cores during this run" in said
