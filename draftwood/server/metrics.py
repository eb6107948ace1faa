"""Prometheus metrics, by the names of vLLM's, so that its dashboards can be used.

What the engine reports is counted on its thread, a request's times on the event loop.
"""

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from draftwood.engine.request import Delta, Event, Finished, Stepped
from draftwood.engine.stats import StepStats, Tally
from draftwood.engine.thread import EngineStats

CONTENT_TYPE = CONTENT_TYPE_LATEST

_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0)
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0, 240.0)
_WHOLE = (0.05, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)

COUNTERS = {
    "prompt_tokens": "Tokens of prompts that were read.",
    "generation_tokens": "Tokens that were generated.",
    "request_success": "Requests that have ended, by reason: stop, length, abort or error.",
    "prefix_cache_queries": "Prompt tokens of choices with a first token.",
    "prefix_cache_hits": "Those of them that were copied from other texts or choices.",
    "num_failed_steps": "Steps that failed as a whole.",
    "spec_decode_num_drafts": "Steps of requests in which tokens were drafted.",
    "spec_decode_num_draft_tokens": "Drafted tokens, those of all branches.",
    "spec_decode_num_accepted_tokens": "Accepted drafted tokens.",
    "spec_decode_num_accepted_tokens_per_pos": "Accepted drafted tokens by depth, from 0.",
    "spec_decode_num_accepted_tokens_per_source": "Accepted drafted tokens by source.",
}
"""Their names on the page end with ``_total``."""

HISTOGRAMS: dict[str, tuple[str, Sequence[float]]] = {
    "time_to_first_token_seconds": ("From the arrival of a request to its first token.", _FIRST),
    "inter_token_latency_seconds": (
        "Seconds between tokens; a step's are shared equally by its tokens.",
        _TOKEN,
    ),
    "request_time_per_output_token_seconds": (
        "Seconds per token after the first, of each finished request.",
        _TOKEN,
    ),
    "request_queue_time_seconds": ("From the queue to the begin of a request.", _WHOLE),
    "e2e_request_latency_seconds": ("From the arrival of a request to its end.", _WHOLE),
}

GAUGES = {
    "num_requests_running": "Requests that are decoded.",
    "num_requests_waiting": "Requests that wait to be decoded.",
    "kv_cache_usage_perc": "Share of the memory of keys and values in use, 0 to 1.",
    "prefix_cache_bytes": "Bytes of the finished texts whose keys and values are kept.",
    "spec_decode_node_price": (
        "Least expected gain, in accepted tokens, of a drafted token; NaN: not weighed."
    ),
}

HTTP = "http_requests"
HTTP_TEXT = (
    "Responses by `handler` (path of the route), `method` (`OTHER`: none of HTTP's) and `status` "
    "(2xx, 4xx, 5xx), those of refused requests included."
)
"""As vLLM's, the name has no prefix, and the metric no label `model_name`."""

_METHODS = frozenset(
    ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
)
_OTHER_METHOD = "OTHER"
"""Any other word: a client may make up as many as it likes, and each would be kept."""

_LABELS = {
    "request_success": "finished_reason",
    "spec_decode_num_accepted_tokens_per_pos": "position",
    "spec_decode_num_accepted_tokens_per_source": "source",
}


class ServerMetrics:
    """The metrics of one server.

    Args:
        prefix: what names begin with, before a colon.
        model: label of all metrics.

    Attributes:
        tally: sums over all steps of requests.
    """

    def __init__(self, prefix: str, model: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._model = model

        def made(kind: Callable[..., Any], name: str, text: str, **more: Any) -> Any:
            labels = ["model_name", *([_LABELS[name]] if name in _LABELS else [])]
            found = kind(f"{prefix}:{name}", text, labels, registry=self._registry, **more)
            return found if name in _LABELS else found.labels(model)

        self._counters = {name: made(Counter, name, text) for name, text in COUNTERS.items()}
        self._gauges = {name: made(Gauge, name, text) for name, text in GAUGES.items()}
        self._histograms = {
            name: made(Histogram, name, text, buckets=buckets)
            for name, (text, buckets) in HISTOGRAMS.items()
        }
        self._responses = Counter(
            HTTP, HTTP_TEXT, ["handler", "method", "status"], registry=self._registry
        )
        # By name and label, as looking for one in prometheus_client takes a lock and several calls.
        self._labelled: dict[tuple[str, str | int], Any] = {}
        self.tally = Tally()
        self._shown: dict[str, int] = {}  # the engine's own counts, as the page has them
        self._newest: dict[int, float] = {}  # when a request had its newest token

    def page(self, stats: EngineStats) -> bytes:
        """All metrics as text."""
        self._gauges["num_requests_running"].set(stats.running)
        self._gauges["num_requests_waiting"].set(stats.waiting)
        self._gauges["kv_cache_usage_perc"].set(stats.cache_usage)
        self._gauges["prefix_cache_bytes"].set(stats.prefix_bytes)
        price = math.nan if stats.price is None else stats.price
        self._gauges["spec_decode_node_price"].set(price)
        for name, value in (
            ("prefix_cache_queries", stats.prefix_queries),
            ("prefix_cache_hits", stats.prefix_hits),
            ("num_failed_steps", stats.failures),
        ):
            self._counters[name].inc(value - self._shown.get(name, 0))
            self._shown[name] = value
        return generate_latest(self._registry)

    def answered(self, handler: str, method: str, status: int) -> None:
        """A response has begun.

        Args:
            handler: path of its route.
            method: of the request.
            status: of the response.
        """
        method = method if method in _METHODS else _OTHER_METHOD
        self._responses.labels(handler, method, f"{status // 100}xx").inc()

    def begun(self, prompt_tokens: int, seconds: float) -> None:
        """A request has its first token."""
        self._counters["prompt_tokens"].inc(prompt_tokens)
        self._histograms["time_to_first_token_seconds"].observe(seconds)

    def ended(self, reason: str, seconds: float) -> None:
        """A request has ended."""
        self._one_of("request_success", reason).inc()
        self._histograms["e2e_request_latency_seconds"].observe(seconds)

    def watch(self, event: Event) -> None:
        """Count an event of the engine, on its thread."""
        if isinstance(event, Delta):
            self._count_tokens(event)
        elif isinstance(event, Stepped):
            self._count_step(event.stats)
        elif isinstance(event, Finished):
            self._newest.pop(event.request_id, None)
            done = event.completion
            for name, value in (
                ("request_time_per_output_token_seconds", done.tpot),
                ("request_queue_time_seconds", done.queued),
            ):
                if not math.isnan(value):
                    self._histograms[name].observe(value)

    def _count_tokens(self, delta: Delta) -> None:
        now, count = perf_counter(), len(delta.tokens)
        before = self._newest.get(delta.request_id)
        self._newest[delta.request_id] = now
        self._counters["generation_tokens"].inc(count)
        if before is not None:
            for _ in delta.tokens:
                self._histograms["inter_token_latency_seconds"].observe((now - before) / count)

    def _count_step(self, step: StepStats) -> None:
        self.tally.add(step)
        if not step.tree.drafted:
            return
        self._counters["spec_decode_num_drafts"].inc()
        self._counters["spec_decode_num_draft_tokens"].inc(step.tree.drafted)
        self._counters["spec_decode_num_accepted_tokens"].inc(len(step.path))
        for position in range(len(step.path)):
            self._one_of("spec_decode_num_accepted_tokens_per_pos", position).inc()
        for source, count in step.accepted_by_source.items():
            self._one_of("spec_decode_num_accepted_tokens_per_source", source).inc(count)

    def _one_of(self, name: str, label: str | int) -> Any:
        """A counter with a label."""
        found = self._labelled.get((name, label))
        if found is None:
            found = self._labelled[name, label] = self._counters[name].labels(self._model, label)
        return found
