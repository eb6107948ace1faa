"""Tiny laws: what they have to offer, and joint laws by hand."""

import itertools

import numpy as np
import pytest

from draftwood.lab.lossless.tiny import VOCAB, Prefix, Row, Scene, completed, joint

PREFIXES = [p for n in range(4) for p in itertools.product(range(VOCAB), repeat=n)]


def test_rows_are_distributions_of_every_kind() -> None:
    scenes = [Scene(seed) for seed in range(6)]
    rows = [scene.p(prefix) for scene in scenes for prefix in PREFIXES]
    assert all(row.dtype == np.float64 and row.min() >= 0 for row in rows)
    assert all(abs(row.sum() - 1) < 1e-15 for row in rows)
    shares = [int(np.count_nonzero(row)) for row in rows]
    assert {shares.count(n) > 5 for n in (1, 2, 3)} == {True}
    assert max(row.max() for row in rows if row.min() > 0) > 0.95
    assert min(row.max() for row in rows) < 0.4


def test_laws_differ_by_seed_source_and_prefix() -> None:
    a, b = Scene(0), Scene(1)
    assert not np.array_equal(a.p((1,)), b.p((1,)))
    assert not np.array_equal(a.p((1,)), a.p((2,)))
    assert not np.array_equal(a.q("x", (1,), 1.0), a.q("y", (1,), 1.0))
    assert not np.array_equal(a.q("x", (1,), 1.0), a.p((1,)))
    assert np.array_equal(a.q("x", (1,), 1.0), Scene(0).q("x", (1,), 1.0))


def test_temperature_and_agreement() -> None:
    scene = Scene(3)
    q = scene.q("x", (0,), 1.0)
    assert np.allclose(scene.q("x", (0,), 0.5), q**2 / (q**2).sum(), rtol=0, atol=1e-15)
    assert np.array_equal(Scene(3, agreeing=True).q("x", (0,), 1.0), scene.p((0,)))
    greedy = Scene(3, temperature=0.0).p((0,))
    assert greedy.max() == greedy.sum() == 1
    assert greedy.argmax() == scene.p((0,)).argmax()


def test_copies_come_in_every_kind() -> None:
    kinds = [Scene(seed).copies("x", (0,)) for seed in range(4)]
    assert sorted(map(len, kinds)) == [0, 1, 1, 2]
    assert {offer.count for offers in kinds for offer in offers} == {1, 2}
    for offers in kinds:
        firsts = [offer.tokens[0] for offer in offers]
        assert len(set(firsts)) == len(firsts)
    assert Scene(0).copies("x", (0,)) == Scene(0).copies("x", (0,))


def coin(prefix: Prefix) -> Row:
    """Tails becomes likelier with every heads (1)."""
    return np.array([0.75, 0.25]) if sum(prefix) else np.array([0.5, 0.5])


def test_joint_laws_by_hand() -> None:
    assert joint(coin, (), 0).tolist() == [1.0]
    assert joint(coin, (), 2).tolist() == [0.25, 0.25, 0.375, 0.125]
    assert joint(coin, (1,), 2).tolist() == [0.5625, 0.1875, 0.1875, 0.0625]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_going_on_as_the_law_says_gives_the_law(length: int) -> None:
    beginnings: list[tuple[Prefix, float]] = [((0,), 0.5), ((1, 0), 0.375), ((1, 1), 0.125)]
    assert np.allclose(completed(coin, beginnings, length), joint(coin, (), length), atol=1e-15)
    assert np.allclose(completed(coin, [((), 1.0)], length), joint(coin, (), length), atol=1e-15)


def test_other_beginnings_give_another_law() -> None:
    found = completed(coin, [((1,), 1.0)], 2)
    assert found.tolist() == [0.0, 0.0, 0.75, 0.25]
    assert completed(coin, [((1, 0, 1), 1.0)], 2).tolist() == [0.0, 0.0, 1.0, 0.0]
