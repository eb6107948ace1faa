"""Noise is a function of seed, stream and absolute position."""

import numpy as np
import pytest
from scipy import stats

from draftwood.errors import DraftwoodError
from draftwood.noise import RequestNoise, Stream


def reference(seed: int, stream: Stream, position: int, lane: int) -> float:
    """The number as numpy's own generator gives it."""
    bits = np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64),
        counter=np.array([0, lane, position, 0], dtype=np.uint64),
    )
    return float(np.random.Generator(bits).random())


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**64 - 1])
def test_numbers_are_philox(seed: int) -> None:
    noise = RequestNoise(seed, 100)
    for i in (0, 5, 1, 255, 0):
        assert noise.token(i) == reference(seed, Stream.TOKEN, 101 + i, 0)
        assert noise.accept(i) == reference(seed, Stream.ACCEPT, 100, i)
        assert noise.draft(i).random() == reference(seed, Stream.DRAFT, 100, i)


def test_token_numbers_are_keyed_by_the_token_s_own_position() -> None:
    plain = [RequestNoise(7, root).token(0) for root in range(20)]
    for root in range(10):
        assert [RequestNoise(7, root).token(d) for d in range(10)] == plain[root : root + 10]
    moved = RequestNoise(7)
    moved.accept(3)
    moved.move(4)
    assert moved.position == 4
    assert moved.token(2) == plain[6]


def test_accept_numbers_are_fresh_at_every_step() -> None:
    seen = {RequestNoise(7, root).accept(node) for root in range(20) for node in range(20)}
    assert len(seen) == 400


def test_draft_generators_start_over_and_differ_by_lane() -> None:
    noise = RequestNoise(3, 9)
    first = noise.draft(0).random(1000)
    noise.token(1)
    assert np.array_equal(noise.draft(0).random(1000), first)
    for other in (noise.draft(1), RequestNoise(3, 10).draft(0), RequestNoise(4, 9).draft(0)):
        assert not np.isin(other.random(1000), first).any()


def test_streams_are_uniform_and_uncorrelated() -> None:
    n = 3000
    noises = [RequestNoise(42, i) for i in range(n)]
    streams = {
        "token": [x.token(0) for x in noises],
        "accept": [x.accept(1) for x in noises],
        "draft": [float(x.draft().random()) for x in noises],
        "seed": [RequestNoise(43, i).token(0) for i in range(n)],
        "nodes": [noises[0].accept(i) for i in range(n)],
    }
    values = np.array(list(streams.values()))
    assert (values >= 0).all()
    assert (values < 1).all()
    for row in values:
        assert stats.kstest(row, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(row[1:], row[:-1])[0, 1]) < 4 / n**0.5
    correlation = np.corrcoef(values) - np.eye(len(values))
    assert np.abs(correlation).max() < 4 / n**0.5


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_range(seed: int) -> None:
    with pytest.raises(DraftwoodError, match="seed must be in"):
        RequestNoise(seed, 0)


def test_position_range() -> None:
    with pytest.raises(DraftwoodError, match="position must be in"):
        RequestNoise(0, -1)
