"""``draftwood throughput`` from end to end, and what it refuses."""

import json
from pathlib import Path

import pytest

from draftwood.lab.bench import quiet
from tests.factories.bench_command import two_sets
from tests.factories.command_line import refused, run


def test_figures_of_every_method_and_concurrency(tmp_path: Path, checkpoint: str) -> None:
    argv = ["throughput", "--prompts", two_sets(tmp_path), "--model", checkpoint]
    argv += ["--methods", "pld", "--concurrency", "2,1", "--max-new-tokens", "32"]
    code, out, err = run(*argv, "--json", str(tmp_path / "out.json"))
    assert code == 0, err
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["complete"] is True
    assert found["provenance"]["settings"]["concurrency"] == [2, 1]
    assert list(found["methods"]) == ["ar", "pld"]
    for name, rows in found["methods"].items():
        assert [each["concurrency"] for each in rows] == [2, 1]
        for each in rows:
            assert each["identical"] == each["all"]["requests"] == 3
            assert each["all"]["output_tokens"] <= 4 * 32
            assert set(each["by_category"]) == {"code", "chat"}
            assert each["ttft_ms"]["p50"] <= each["latency_ms"]["p99"]
            assert (each["all"]["mean_acceptance_length"] > 1) == (name == "pld")
            assert each["of_passes"] == [each["tokens_per_second"]]
    assert json.loads(out)["concurrency"] == [2, 1]
    assert "acceptance length" in err
    assert "One pass of each method, in the order ar, pld" in " ".join(err.split())
    assert found["provenance"]["other_processes"]["limit"] == 0.05


def test_passes_alternate_and_a_disturbed_run_is_named(
    tmp_path: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "LIMIT", -1.0)
    argv = ["throughput", "--prompts", two_sets(tmp_path), "--model", checkpoint, "--repeats", "3"]
    argv += ["--methods", "pld", "--concurrency", "2", "--max-new-tokens", "4"]
    code, _, err = run(*argv, "--json", str(tmp_path / "out.json"))
    assert code == 0, err
    order = [line.split(",")[0] for line in err.splitlines() if line.endswith(", 2 users")]
    assert order == ["ar", "pld", "pld", "ar", "ar", "pld"]
    [row] = json.loads((tmp_path / "out.json").read_text())["methods"]["pld"]
    assert row["tokens_per_second"] == sorted(row["of_passes"])[1]
    shown = " ".join(err.split())
    assert "The median of 3 passes, every second one in reversed order." in shown
    assert "its times and speeds are not reliable" in shown


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--concurrency", "0"), "give numbers from 1 to 64, each once"),
        (("--concurrency", "4,65"), "give numbers from 1 to 64, each once"),
        (("--concurrency", "4,4"), "give numbers from 1 to 64, each once"),
        (("--concurrency", "many"), "write integers, such as 1,4,16"),
        (("--methods", "hf"), "unknown method 'hf'"),
        (("--concurrency", "1,4"), "--concurrency has 4, and there are only 3 prompts: give at"),
    ],
)
def test_refusals(tmp_path: Path, checkpoint: str, given: tuple[str, str], message: str) -> None:
    argv = ["throughput", "--prompts", two_sets(tmp_path), "--model", checkpoint]
    code, _, err = run(*argv, *given)
    assert code == 2
    assert message in " ".join(err.split())


def test_memory_is_checked_before_the_model_is_loaded(tmp_path: Path) -> None:
    argv = ("throughput", "--prompts", two_sets(tmp_path), "--model", "/nowhere/at-all")
    assert "memory is 'much': give bytes" in refused(*argv, "--memory", "much")
