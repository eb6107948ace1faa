"""Order of the training tokens, a pure function of seed and step."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.lab.train.corpus import Domain, Tokens


def parse_mixture(text: str) -> dict[str, float]:
    """Parse ``"code=0.6,prose=0.4"`` into weights that sum to one, or raise DraftwoodError."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        try:
            weight = float(value)
        except ValueError:
            weight = -1.0
        if not name or not 0.0 <= weight < float("inf") or name in weights:
            raise DraftwoodError(
                f"Mixture part {part!r}: write domain=weight, each domain once, weights >= 0."
            )
        weights[name] = weight
    total = sum(weights.values())
    if total <= 0.0:
        raise DraftwoodError(f"The mixture {text!r} has no weight above 0.")
    return {name: weight / total for name, weight in weights.items()}


class Batches:
    """Rows of ``length + 1`` tokens from all domains, in the mixture's proportion.

    In each epoch, a domain is cut into blocks from a random offset and read in random order. The
    order of domains follows from counts alone, so that any step's rows can be repeated by skipping
    the steps before it.
    """

    def __init__(
        self, domains: tuple[Domain, ...], mixture: Mapping[str, float], length: int, seed: int
    ) -> None:
        self._domains = [domain for domain in domains if mixture.get(domain.name, 0.0) > 0.0]
        self._weights = [mixture[domain.name] for domain in self._domains]
        self._length = length
        self._seed = seed
        self._rows = [0] * len(self._domains)
        self._orders: dict[tuple[int, int], tuple[int, NDArray[np.int64]]] = {}
        for domain in self._domains:
            if len(domain.train) < 2 * length + 1:
                raise DraftwoodError(
                    f"Domain {domain.name} has {len(domain.train)} tokens, too few for rows of "
                    f"{length}; leave it out of the mixture or shorten the rows."
                )

    def skip(self, rows: int) -> None:
        """Skip ``rows`` rows."""
        for _ in range(rows):
            self._rows[self._next_domain()] += 1

    def take(self, rows: int) -> NDArray[np.int64]:
        """The next ``rows`` rows, int64 [rows, length + 1]."""
        taken = []
        for _ in range(rows):
            index = self._next_domain()
            taken.append(self._row(index, self._rows[index]))
            self._rows[index] += 1
        return np.stack(taken).astype(np.int64)

    def epochs(self) -> dict[str, float]:
        """Number of epochs of each domain so far."""
        return {
            domain.name: round(rows * self._length / len(domain.train), 3)
            for domain, rows in zip(self._domains, self._rows, strict=True)
        }

    def _next_domain(self) -> int:
        total = sum(self._rows) + 1
        owed = [
            weight * total - rows for weight, rows in zip(self._weights, self._rows, strict=True)
        ]
        return int(np.argmax(owed))

    def _row(self, index: int, row: int) -> Tokens:
        tokens = self._domains[index].train
        # The number of blocks at the largest offset, so that all epochs are equally long.
        blocks = (len(tokens) - self._length) // self._length
        epoch, block = divmod(row, blocks)
        if (index, epoch) not in self._orders:
            self._orders.pop((index, epoch - 1), None)
            rng = np.random.default_rng([self._seed, index, epoch])
            self._orders[index, epoch] = (int(rng.integers(self._length)), rng.permutation(blocks))
        offset, order = self._orders[index, epoch]
        start = offset + int(order[block]) * self._length
        return tokens[start : start + self._length + 1]


def held_out_rows(domain: Domain, length: int, rows: int) -> NDArray[np.int64]:
    """Up to ``rows`` rows [rows, length + 1], spread evenly over the held-out text.

    A text shorter than one row gives a single shorter row.
    """
    tokens = domain.held_out
    blocks = (len(tokens) - 1) // length
    if blocks < 1:
        return np.asarray(tokens, dtype=np.int64)[None]
    chosen = np.unique(np.linspace(0, blocks - 1, min(rows, blocks)).round().astype(np.int64))
    picked = [tokens[at * length : (at + 1) * length + 1] for at in chosen]
    return np.stack(picked).astype(np.int64)
