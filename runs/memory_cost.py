"""Bytes of the memory, and microseconds to look up and to add text.

Prints one JSON object. Run it on a quiet machine:

    python runs/memory_cost.py --tokens 1000000
"""

import json
import statistics
import time

import click
import numpy as np

from draftwood.drafters.memory.namespaces import Namespaces
from draftwood.lab.bench.provenance import provenance

TEXT = 2000
"""Tokens of a remembered text."""


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


@click.command()
@click.option("--tokens", default=1_000_000, show_default=True, help="Tokens to remember.")
@click.option("--vocabulary", default=50_000, show_default=True)
@click.option("--queries", default=20_000, show_default=True)
def main(tokens: int, vocabulary: int, queries: int) -> None:
    """Measure and print."""
    memory = Namespaces(tokens)
    given = texts(tokens, vocabulary)
    adding = []
    for text in given:
        start = time.perf_counter()
        memory.add(text)
        adding.append((time.perf_counter() - start) / len(text))
    rng = np.random.default_rng(1)
    looking, matches = [], []
    for _ in range(queries):
        text = given[rng.integers(len(given))]
        place = int(rng.integers(64, TEXT))
        recent = text[place - 64 : place]
        if rng.random() < 0.5:  # a text that is not remembered
            recent = [*recent[:-5], *rng.integers(vocabulary, size=2).tolist(), *recent[-3:]]
        start = time.perf_counter()
        found = memory.continuations(recent, most=4, tokens=20)
        looking.append(time.perf_counter() - start)
        matches.append(found[0].match_length if found else 0)
    quantiles = statistics.quantiles(looking, n=100)
    facts = provenance(
        model={}, settings={"tokens": tokens, "vocabulary": vocabulary, "queries": queries}, sets=[]
    )
    click.echo(
        json.dumps(
            {
                "provenance": facts,
                "tokens": memory.size,
                "megabytes": sum(store.bytes for store in memory.stores.values()) / 1e6,
                "add_us_per_token": 1e6 * statistics.mean(adding),
                "longest_add_ms": 1e3 * TEXT * max(adding),
                "query_us": {"mean": 1e6 * statistics.mean(looking), "p50": 1e6 * quantiles[49]}
                | {"p99": 1e6 * quantiles[98]},
                "mean_match": statistics.mean(matches),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
