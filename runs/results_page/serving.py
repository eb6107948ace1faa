"""Load on servers: Draftwood's, and those of others on the same weights."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from .markdown import Tables, number, percent, table
from .stored import Run, Runs, commit, link

PLAIN = "plain"
"""The server that decodes without drafts."""

_HEADER = (
    *("server", "tok/s", "of rounds", "over plain", "first token, ms", "between chunks, ms"),
    *("per token, ms", "finished", "answers as plain's", "repeated 8-grams", "client"),
)


def load(runs: Runs) -> Iterable[str]:
    """A table of all servers at each number of requests at once."""
    found = {name: run for name, run in runs.items() if "server_load" in run}
    for name in sorted(found, key=lambda each: _at_once(found[each])):
        run = found[name]
        processor = run["provenance"]["hardware"]["cpu"]
        yield f"{_at_once(run)} at once ({link(name, commit(run))}, {processor}):"
        if repeated := _repeated(run):
            yield repeated
        yield _table(run)


def _repeated(run: Run) -> str:
    """What is said where prompts came more than once; empty if none did."""
    prompts: int = run["provenance"]["settings"]["prompts"]
    most = max(load["requests"] for load in run["server_load"].values())
    if most <= prompts:
        return ""
    return (
        f"Up to {most} requests were of {prompts} prompts, so that some came again, and servers "
        "that keep the beginnings of prompts did not have to read those anew."
    )


def alone(run: Run) -> Iterable[str]:
    """The table of one run, with how it was made and what failed."""
    if repeated := _repeated(run):
        yield repeated
    yield _table(run)
    settings = run["provenance"]["settings"]
    yield (
        f"{settings['rounds']} rounds of {settings['seconds']:g} seconds for each server, "
        f"{settings['concurrency']} requests at once, {settings['rate']:g} arrivals a second, at "
        f"most {settings['max_tokens']} tokens each, {settings['prompts']} prompts."
    )
    for name, each in run["server_load"].items():
        if each["errors"]:
            yield f"Errors of {name}: {'; '.join(each['errors'])}"


def _at_once(run: Run) -> int:
    found: int = run["provenance"]["settings"]["concurrency"]
    return found


def _table(run: Run) -> str:
    """The servers, the fastest first."""
    loads: Mapping[str, Mapping[str, Any]] = run["server_load"]
    order = sorted(loads, key=lambda name: -loads[name]["tokens_per_second"])
    return table(_HEADER, [_cells(name, loads[name], loads.get(PLAIN)) for name in order])


def _cells(name: str, load: Mapping[str, Any], plain: Mapping[str, Any] | None) -> list[str]:
    software = load["software"]
    over: list[float] = []
    if plain is not None:
        # Of each round, as the machine's speed drifts between them.
        pairs = zip(load["of_rounds"], plain["of_rounds"], strict=True)
        over = [own / other for own, other in pairs if other]
    return [
        f"`{name}`" if software == "draftwood" else software,
        number(load["tokens_per_second"], 1),
        ", ".join(number(each, 0) for each in load["of_rounds"]),
        number(median(over)) if over else "-",
        *(_milliseconds(load[key]) for key in ("first_token", "gap", "time_per_token")),
        f"{load['finished']} of {load['requests']}",
        "-" if plain is None else _same(load["answers"], plain["answers"]),
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


TABLES: Tables = {"server_load": alone}
"""All tables of this file."""
