"""Load on servers: Draftwood's, and those of others on the same weights."""

from collections.abc import Iterable, Mapping
from typing import Any

from .markdown import Tables, number, percent, table
from .stored import Run, Runs, commit, link

PLAIN = "plain"
"""The server that decodes without drafts."""

_HEADER = (
    *("server", "at once", "tok/s", "over plain", "first token, ms", "between chunks, ms"),
    *("per token, ms", "requests", "answers as plain's", "repeated 8-grams", "client", "run"),
)


def load(runs: Runs) -> Iterable[str]:
    """A table of all servers at each number of requests at once."""
    found = {name: run for name, run in runs.items() if "server_load" in run}
    if not found:
        return
    plain = {
        run["server_load"]["concurrency"]: run["server_load"]
        for run in found.values()
        if run["server_load"]["server"] == PLAIN
    }
    order = sorted(found, key=lambda name: _place(found[name]["server_load"]))
    rows = [[*_cells(found[name], plain), f"{link(name, commit(found[name]))}"] for name in order]
    yield table(_HEADER, rows)


def _place(load: Mapping[str, Any]) -> tuple[int, float]:
    """The fastest first, at each number of requests."""
    return load["concurrency"], -load["tokens_per_second"]


def _cells(run: Run, plain: Mapping[int, Mapping[str, Any]]) -> list[str]:
    load, software = run["server_load"], run["provenance"]["settings"]["software"]
    base = plain.get(load["concurrency"])
    over = None if base is None else load["tokens_per_second"] / base["tokens_per_second"]
    return [
        f"`{load['server']}`" if software == "draftwood" else software,
        str(load["concurrency"]),
        number(load["tokens_per_second"], 1),
        number(over),
        *(_milliseconds(load[key]) for key in ("first_token", "gap", "time_per_token")),
        f"{load['finished']} of {load['requests']}",
        "-" if base is None else _same(load["answers"], base["answers"]),
        percent(load["repeated_8grams"]),
        percent(load["client_share"]),
    ]


def _milliseconds(quantiles: Mapping[str, float | None]) -> str:
    """Median and 99th percentile."""
    p50, p99 = (quantiles[key] for key in ("p50", "p99"))
    if p50 is None or p99 is None:
        return "-"
    return f"{1e3 * p50:.0f}, {1e3 * p99:.0f}"


def _same(own: Mapping[str, str], other: Mapping[str, str]) -> str:
    """How many answers to the same prompts are the same."""
    both = own.keys() & other.keys()
    return f"{sum(own[key] == other[key] for key in both)} of {len(both)}"


def alone(run: Run) -> Iterable[str]:
    """The figures of one run; its answers are compared on the page of all."""
    load = run["server_load"]
    rows = [_cells(run, {})]
    yield table(_HEADER[:-1], rows)
    settings = run["provenance"]["settings"]
    yield (
        f"{settings['seconds']:g} seconds, {settings['rate']:g} arrivals a second, at most "
        f"{settings['max_tokens']} tokens each, {load['prompts']} prompts."
    )
    if load["errors"]:
        yield "Errors: " + "; ".join(load["errors"])


TABLES: Tables = {"server_load": alone}
"""All tables of this file."""
