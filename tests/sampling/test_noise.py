"""Noise is a function of seed, stream and absolute position."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from draftwood.sampling.noise import RequestNoise, Stream


def reference(seed: int, stream: Stream, position: int, lane: int) -> float:
    """The number as numpy's own generator gives it."""
    bits = np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64),
        counter=np.array([0, lane, position, 0], dtype=np.uint64),
    )
    return float(np.random.Generator(bits).random())


def exponentials(seed: int, position: int, count: int) -> list[float]:
    """A token's Exp(1) variates from the words of numpy's own generator."""
    bits = np.random.Philox(
        key=np.array([seed, Stream.TOKEN], dtype=np.uint64),
        counter=np.array([0, 0, position, 0], dtype=np.uint64),
    )
    words = [int(word) for word in bits.random_raw(count)]
    return [-math.log(((word >> 12) + 0.5) / 2**52) for word in words]


def first(noise: RequestNoise, depth: int, count: int = 1000) -> int:
    """The token drawn with equal weights."""
    return noise.choose(depth, torch.ones(count))


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**64 - 1])
def test_numbers_are_philox(seed: int) -> None:
    noise = RequestNoise(seed, 100)
    for i in (0, 5, 1, 255, 0):
        u = reference(seed, Stream.ACCEPT, 100, i)
        assert noise.accepts(i, math.nextafter(u, 1.0))
        assert not noise.accepts(i, u)
        assert noise.draft(i).random() == reference(seed, Stream.DRAFT, 100, i)
        weights = [0.1, 0.0, 2.0, 0.5]
        keys = [w / c for w, c in zip(weights, exponentials(seed, 101 + i, 4), strict=True)]
        assert noise.choose(i, torch.tensor(weights)) == keys.index(max(keys))


def test_token_numbers_are_keyed_by_the_token_s_own_position() -> None:
    plain = [first(RequestNoise(7, root), 0) for root in range(20)]
    assert len(set(plain)) > 10
    for root in range(10):
        assert [first(RequestNoise(7, root), d) for d in range(10)] == plain[root : root + 10]
    moved = RequestNoise(7)
    moved.accepts(3, 0.5)
    moved.position = 4
    assert first(moved, 2) == plain[6]


def test_accept_numbers_are_fresh_at_every_step() -> None:
    seen = [RequestNoise(7, root).accepts(node, 0.5) for root in range(50) for node in range(50)]
    assert 1150 < sum(seen) < 1350
    assert sum(a == b for a, b in itertools.pairwise(seen)) < 1350


def test_certain_decisions_need_no_numbers() -> None:
    noise = RequestNoise(7)
    assert all(noise.accepts(node, 1.0) for node in range(100))
    assert not any(noise.accepts(node, 0.0) for node in range(100))
    assert not noise.accepts(0, math.nan)


def test_draft_generators_repeat_and_differ_by_lane() -> None:
    noise = RequestNoise(3, 9)
    numbers = noise.draft(0).random(1000)
    noise.choose(1, torch.ones(3))
    assert np.array_equal(noise.draft(0).random(1000), numbers)
    for other in (noise.draft(1), RequestNoise(3, 10).draft(0), RequestNoise(4, 9).draft(0)):
        assert not np.isin(other.random(1000), numbers).any()


def test_exponentials_are_exponential_positive_and_prefixes() -> None:
    noise = RequestNoise(5, 3)
    cpu = torch.device("cpu")
    found = noise.exponentials([0], 100_000, cpu)[0].numpy()
    assert stats.kstest(found, "expon").pvalue > 1e-3
    assert found.min() > 0
    assert np.array_equal(noise.exponentials([4, 0], 10, cpu)[1], found[:10])


def accept_number(noise: RequestNoise, node: int) -> float:
    """The least probability at which a node is accepted, to within 2**-20."""
    found = 0.0
    for i in range(1, 21):
        if not noise.accepts(node, found + 2.0**-i):
            found += 2.0**-i
    return found


def token_number(noise: RequestNoise) -> float:
    return (first(noise, 0, 10_000) + 0.5) / 10_000


def test_streams_are_uniform_and_uncorrelated() -> None:
    n = 3000
    noises = [RequestNoise(42, i) for i in range(n)]
    streams = {
        "token": [token_number(x) for x in noises],
        "accept": [accept_number(x, 1) for x in noises],
        "draft": [float(x.draft().random()) for x in noises],
        "seed": [token_number(RequestNoise(43, i)) for i in range(n)],
        "nodes": [accept_number(noises[0], i) for i in range(n)],
    }
    values = np.array(list(streams.values()))
    assert (values >= 0).all()
    assert (values < 1).all()
    for row in values:
        assert stats.kstest(row, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(row[1:], row[:-1])[0, 1]) < 4 / n**0.5
    correlation = np.corrcoef(values) - np.eye(len(values))
    assert np.abs(correlation).max() < 4 / n**0.5
