"""Bytes of the sources that copy text, and microseconds to look up and to add text.

They are the memory of other requests, the suffix automaton of a request's own text and the
datastore of given files. Prints one JSON object. Run it on a quiet machine:

    python runs/source_cost.py --tokens 1000000
"""

import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator

import click
import numpy as np

from draftwood.drafters.datastore.suffix_array import LONGEST, Datastore
from draftwood.drafters.memory.namespaces import Namespaces
from draftwood.drafters.suffix import Suffix, SuffixAutomaton
from draftwood.lab.bench.provenance import provenance

TEXT = 2000
"""Tokens of a text."""

RECENT = 64
"""Tokens of a text's end that are looked up."""


def texts(tokens: int, vocabulary: int) -> list[list[int]]:
    """Texts whose words are as frequent as those of a language; each repeats parts of another."""
    rng = np.random.default_rng(0)
    found: list[list[int]] = []
    while len(found) * TEXT < tokens:
        own = (rng.zipf(1.2, TEXT) % vocabulary).tolist()
        if found:
            other, place = found[rng.integers(len(found))], int(rng.integers(TEXT // 2))
            own[place : place + TEXT // 4] = other[place : place + TEXT // 4]
        found.append(own)
    return found


def ends(given: list[list[int]], vocabulary: int, queries: int) -> Iterator[list[int]]:
    """The ends of texts; half of them are of texts that are not known."""
    rng = np.random.default_rng(1)
    for _ in range(queries):
        text = given[rng.integers(len(given))]
        place = int(rng.integers(RECENT, TEXT))
        recent = text[place - RECENT : place]
        if rng.random() < 0.5:
            recent = [*recent[:-5], *rng.integers(vocabulary, size=2).tolist(), *recent[-3:]]
        yield recent


def looked_up(queries: Iterator[list[int]], look: Callable[[list[int]], int]) -> dict[str, float]:
    """Times of look-ups in microseconds, and the mean of what they return, a match length."""
    times, matches = [], []
    for recent in queries:
        start = time.perf_counter()
        matches.append(look(recent))
        times.append(time.perf_counter() - start)
    quantiles = statistics.quantiles(times, n=100)
    return {
        "mean_us": 1e6 * statistics.mean(times),
        "p50_us": 1e6 * quantiles[49],
        "p99_us": 1e6 * quantiles[98],
        "mean_match": statistics.mean(matches),
    }


def of_memory(given: list[list[int]], queries: Iterator[list[int]]) -> dict[str, object]:
    """The memory of other requests."""
    memory = Namespaces(sum(map(len, given)))
    adding = []
    for text in given:
        start = time.perf_counter()
        memory.add(text)
        adding.append((time.perf_counter() - start) / len(text))

    def look(recent: list[int]) -> int:
        found = memory.continuations(recent, most=4, tokens=20)
        return found[0].match_length if found else 0

    return {
        "tokens": memory.size,
        "megabytes": sum(store.bytes for store in memory.stores.values()) / 1e6,
        "add_us_per_token": 1e6 * statistics.mean(adding),
        "longest_add_ms": 1e3 * TEXT * max(adding),
        "query": looked_up(queries, look),
    }


def of_suffix(given: list[list[int]]) -> dict[str, object]:
    """The suffix automaton of texts that are generated token by token."""
    settings, adding, looking = Suffix(), [], []
    for text in given:
        automaton = SuffixAutomaton()
        for token in text:
            start = time.perf_counter()
            automaton.extend((token,))
            middle = time.perf_counter()
            automaton.continuations(settings)
            adding.append(middle - start)
            looking.append(time.perf_counter() - middle)
    tracemalloc.start()
    kept = SuffixAutomaton()
    kept.extend(token for text in given for token in text)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "tokens": sum(map(len, given)),
        "bytes_per_token": size / sum(map(len, given)),
        "add_us_per_token": 1e6 * statistics.mean(adding),
        "query": {"mean_us": 1e6 * statistics.mean(looking)},
    }


def of_datastore(given: list[list[int]], queries: Iterator[list[int]]) -> dict[str, object]:
    """The datastore of files."""
    start = time.perf_counter()
    store = Datastore(given)
    built = time.perf_counter() - start

    def look(recent: list[int]) -> int:
        found = store.find(recent, LONGEST)
        found.successors(0, len(found.places), 0)
        return found.match

    return {
        "tokens": store.tokens,
        "build_seconds": built,
        "query": looked_up(queries, look),
    }


@click.command()
@click.option("--tokens", default=1_000_000, show_default=True, help="Tokens of all texts.")
@click.option("--vocabulary", default=50_000, show_default=True)
@click.option("--queries", default=20_000, show_default=True)
def main(tokens: int, vocabulary: int, queries: int) -> None:
    """Measure and print."""
    given = texts(tokens, vocabulary)
    facts = provenance(
        model={}, settings={"tokens": tokens, "vocabulary": vocabulary, "queries": queries}, sets=[]
    )
    click.echo(
        json.dumps(
            {
                "provenance": facts,
                "memory": of_memory(given, ends(given, vocabulary, queries)),
                # A request has a fraction of the tokens that files have.
                "suffix": of_suffix(given[: max(1, len(given) // 20)]),
                "datastore": of_datastore(given, ends(given, vocabulary, queries)),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
