"""Prepared adjacency tables with given or random rows."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from draftwood.drafters.adjacency.table import (
    Facts,
    PreparedTable,
    codes_of,
    key_dtype,
    token_dtype,
)
from draftwood.drafters.adjacency.table_file import to_bytes
from draftwood.protocols import Fingerprint

ANY = -1
"""Token before, of the row of a token alone."""

Successors = Mapping[tuple[int, int], Mapping[int, float]]
"""Probability of each successor, likeliest first, by (before, token)."""


def prepared_table(
    rows: Successors,
    vocab_size: int,
    width: int = 10,
    *,
    vocabulary: str = "",
    fingerprint: Fingerprint | None = None,
) -> PreparedTable:
    """A table with these rows."""
    size = vocab_size
    keyed = {(size if b == ANY else b) * size + t: row for (b, t), row in rows.items()}
    given = [keyed[key] for key in sorted(keyed)]
    return PreparedTable(
        Facts(size, width, "some model", "float32", vocabulary, fingerprint, (), 0, {}),
        np.array(sorted(keyed), dtype=key_dtype(size)),
        np.array([len(row) for row in given], dtype=np.uint8),
        np.array([t for row in given for t in row], dtype=token_dtype(size)),
        codes_of(np.array([p for row in given for p in row.values()])),
    )


def random_rows(rng: np.random.Generator, vocab_size: int, pairs: int, width: int) -> Successors:
    """Rows of random pairs and of random tokens alone."""
    found: dict[tuple[int, int], dict[int, float]] = {}
    for _ in range(pairs):
        count = int(rng.integers(1, width + 1))
        tokens = rng.choice(vocab_size, count, replace=False).tolist()
        probs = np.sort(rng.dirichlet([0.5] * count))[::-1].clip(1e-3).tolist()
        before = int(rng.integers(ANY, vocab_size))
        found[before, int(rng.integers(vocab_size))] = dict(zip(tokens, probs, strict=True))
    return found


def save_table(path: Path, table: PreparedTable) -> str:
    """Write the table; returns the file's name."""
    path.write_bytes(to_bytes(table))
    return str(path)
