"""The order of the data: proportions, epochs, and the same again when resumed."""

import numpy as np
import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.train.batches import Batches, held_out_rows, parse_mixture
from draftwood.lab.train.corpus import Domain


def domain(name: str, start: int, count: int, held_out: int = 50) -> Domain:
    train = np.arange(start, start + count, dtype=np.uint16)
    return Domain(name, train, np.arange(held_out, dtype=np.uint16))


def two() -> tuple[Domain, ...]:
    return (domain("a", 0, 500), domain("b", 1000, 90))


def test_rows_follow_the_mixture_and_are_contiguous() -> None:
    rows = Batches(two(), {"a": 0.75, "b": 0.25}, 8, seed=1).take(80)
    assert rows.shape == (80, 9)
    assert rows.dtype == np.int64
    assert (np.diff(rows, axis=1) == 1).all()
    assert (rows[:, 0] < 1000).sum() == 60


def test_an_epoch_meets_every_block_once() -> None:
    batches = Batches((domain("a", 0, 500),), {"a": 1.0}, 8, seed=1)
    blocks = (500 - 8) // 8
    first, second = batches.take(blocks), batches.take(blocks)
    for epoch in (first, second):
        assert len(set(epoch[:, 0].tolist())) == blocks
        assert len(set((epoch[:, 0] % 8).tolist())) == 1
    assert not np.array_equal(first, second)
    assert batches.epochs()["a"] == pytest.approx(2 * blocks * 8 / 500, abs=1e-3)


def test_skipping_equals_taking_with_the_same_seed() -> None:
    mixture = {"a": 0.6, "b": 0.4}
    straight = Batches(two(), mixture, 8, seed=3)
    straight.take(137)
    skipped = Batches(two(), mixture, 8, seed=3)
    skipped.skip(137)
    following = straight.take(30)
    assert np.array_equal(following, skipped.take(30))
    other = Batches(two(), mixture, 8, seed=4)
    other.skip(137)
    assert not np.array_equal(following, other.take(30))


def test_data_too_short_is_refused() -> None:
    with pytest.raises(DraftwoodError, match="too few"):
        Batches((domain("a", 0, 16),), {"a": 1.0}, 8, seed=1)


def test_mixtures_are_normalised() -> None:
    assert parse_mixture("a=3, b=1") == {"a": 0.75, "b": 0.25}


@pytest.mark.parametrize("text", ["", "a", "a=x", "a=-1", "a=nan", "a=1,a=2", "a=0", "=1"])
def test_other_mixtures_are_refused(text: str) -> None:
    with pytest.raises(DraftwoodError, match="ixture"):
        parse_mixture(text)


def test_held_out_rows_are_spread_or_short() -> None:
    text = domain("a", 0, 100, held_out=100)
    rows = held_out_rows(text, 8, 4)
    assert rows[:, 0].tolist() == [0, 32, 56, 88]
    assert rows.shape == (4, 9)
    assert held_out_rows(text, 8, 1000).shape == (12, 9)
    assert held_out_rows(text, 400, 4).shape == (1, 100)
