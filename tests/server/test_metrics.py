"""Metrics by vLLM's names, and their agreement with what was decoded."""

import json
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from draftwood.engine.request import Stepped
from draftwood.engine.stats import StepStats
from draftwood.protocols import StepTimes
from draftwood.server.metrics import COUNTERS, GAUGES, HISTOGRAMS, HTTP, ServerMetrics
from draftwood.tree import tree_of
from tests.factories.running_server import Running, running, tiny_engine

VLLM = {
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prompt_tokens_total",
    "generation_tokens_total",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_success_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
}
"""Names that vLLM's dashboards and load generators read."""


DASHBOARD = Path(__file__).parents[2] / "docs" / "serving-dashboard.json"


def samples(server: Running) -> dict[str, float]:
    """All samples of the page, their labels but the model's in braces."""
    found = {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        for sample in family.samples:
            if family.name == HTTP:
                labels = ",".join(v for _, v in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}"] = sample.value
                continue
            assert sample.labels["model_name"] == "tiny"
            labels = ",".join(v for k, v in sorted(sample.labels.items()) if k != "model_name")
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_the_names_are_vllms() -> None:
    ours = {f"{name}_total" for name in COUNTERS} | {*HISTOGRAMS, *GAUGES}
    assert ours >= VLLM
    with running(tiny_engine("ar"), metrics_names="vllm") as server:
        found = samples(server)
        assert "vllm:num_requests_running" in found
        assert all(name.startswith(("vllm:", f"{HTTP}_total")) for name in found)


def test_a_labelled_counter_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = ServerMetrics("draftwood", "tiny")
    tree = tree_of([1, 2, 3, 4], [-1, 0, 1, 0], "draft")
    asked: list[tuple[object, ...]] = []
    labels = Counter.labels

    def noted(self: Counter, *given: object) -> Counter:
        asked.append(given)
        return labels(self, *given)

    monkeypatch.setattr(Counter, "labels", noted)
    for _ in range(3):
        metrics.watch(Stepped(0, StepStats(tree, (1, 2), 3, StepTimes(), 1)))
        metrics.ended("stop", 0.1)
    assert asked == [("tiny", 0), ("tiny", 1), ("tiny", "draft"), ("tiny", "stop")]
    assert metrics.tally.accepted_by_source == {"draft": 6}
    assert metrics.tally.drafted_by_source == {"draft": 9}


def test_refused_requests_are_counted_by_route_and_status() -> None:
    with running(tiny_engine("ar"), api_keys=("secret",)) as server:
        keyed = {"Authorization": "Bearer secret"}
        server.get("/health")
        server.post("/v1/completions", {"prompt": "ab", "max_tokens": 2}, headers=keyed)
        server.post("/v1/completions", {"prompt": ""}, headers=keyed)
        server.post("/v1/completions", {"prompt": "ab"})
        server.get("/v1/models/other", headers=keyed)
        server.get("/nowhere", headers=keyed)
        for word in ("BREW", "PROPFIND"):
            httpx.request(word, f"{server.root}/nowhere", headers=keyed)
        found = {k: v for k, v in samples(server).items() if k.startswith(HTTP)}
    assert found == {
        "http_requests_total{/health,GET,2xx}": 1,
        "http_requests_total{/v1/completions,POST,2xx}": 1,
        "http_requests_total{/v1/completions,POST,4xx}": 1,
        "http_requests_total{none,POST,4xx}": 1,
        "http_requests_total{/v1/models/{name:path},GET,4xx}": 1,
        "http_requests_total{none,GET,4xx}": 1,
        "http_requests_total{none,OTHER,4xx}": 2,
    }


def test_the_counts_are_those_of_the_answers() -> None:
    with running(tiny_engine("goose:budget=8", max_batch=2), most=9) as server:
        body = {"prompt": "abcabcabc", "max_tokens": 30, "temperature": 0, "n": 2}
        choices = server.post("/v1/completions", body).json()["choices"]
        stats = [choice["speculative_decoding_stats"] for choice in choices]
        server.post("/v1/completions", {"prompt": ""})
        assert server.idle()
        found = samples(server)
        get = {name.removeprefix("draftwood:"): value for name, value in found.items()}.__getitem__
        assert get("generation_tokens_total") == 60
        assert get("prompt_tokens_total") == 18
        assert get("request_success_total{length}") == 2
        accepted = sum(each["num_accepted_draft_tokens"] for each in stats)
        assert get("spec_decode_num_accepted_tokens_total") == accepted > 0
        assert get("spec_decode_num_draft_tokens_total") == sum(
            each["num_draft_tokens"] for each in stats
        )
        per_position = [v for k, v in found.items() if "_per_pos_total" in k]
        per_source = [v for k, v in found.items() if "_per_source_total" in k]
        assert sum(per_position) == sum(per_source) == accepted
        assert per_position == sorted(per_position, reverse=True)
        assert get("spec_decode_num_drafts_total") <= sum(s["num_spec_steps"] for s in stats)
        for name, count in (
            ("time_to_first_token_seconds", 2),
            ("e2e_request_latency_seconds", 2),
            ("request_queue_time_seconds", 2),
            ("request_time_per_output_token_seconds", 2),
            ("inter_token_latency_seconds", 58),
        ):
            assert get(f"{name}_count") == count
        assert get("num_requests_running") == get("num_requests_waiting") == 0
        assert 0 <= get("kv_cache_usage_perc") <= 1


@pytest.mark.parametrize("n", [1, 3])
def test_requests_that_the_engine_refuses_have_not_ended(n: int) -> None:
    with running(tiny_engine("ar")) as server:
        body = {"prompt": "abc", "n": n, "stop": [""], "max_tokens": 2}
        assert server.post("/v1/completions", body).status_code == 400
        assert server.idle()
        found = samples(server)
    ended = {k: v for k, v in found.items() if "request_success" in k or "e2e_request" in k}
    assert ended
    assert not any(ended.values())


def test_prompts_that_begin_alike_are_found_in_the_prefix_cache() -> None:
    with running(tiny_engine("goose:budget=8", prefix_cache="10MB")) as server:
        prompt = "abcabcabc" * 20
        texts = [
            server.post("/v1/completions", {"prompt": prompt, "temperature": 0, "user": user})
            for user in ("one", "one", "two")
        ]
        assert len({each.json()["choices"][0]["text"] for each in texts}) == 1
        for _ in range(2):
            found = samples(server)
            assert found["draftwood:prefix_cache_queries_total"] == 3 * 180
            assert found["draftwood:prefix_cache_hits_total"] == 179, "users share no text"
            kept = server.get("/stats").json()["prefix_bytes"]
            assert found["draftwood:prefix_cache_bytes"] == kept > 0


def test_the_dashboard_reads_metrics_that_there_are() -> None:
    names = {f"{name}_total" for name in COUNTERS} | {*GAUGES}
    names |= {f"{name}_bucket" for name in HISTOGRAMS}
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    read = {name for expression in asked for name in re.findall(r"names}:(\w+)", expression)}
    assert len(read) > 12
    assert read <= names
