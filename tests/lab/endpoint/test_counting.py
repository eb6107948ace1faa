"""Tests of counts: the statistics as SciPy has them, and the power that is stated."""

import math

import numpy as np
import pytest
from scipy import stats

from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.answer import Choice, Token
from draftwood.lab.endpoint.counting import (
    LEAST_P,
    POWER,
    Key,
    against_distribution,
    chance_of_one,
    completed,
    key_of,
    power,
    two_samples,
)
from draftwood.lab.endpoint.distribution import distribution_of


def test_keys_have_no_spaces_and_whole_texts_alone() -> None:
    assert key_of(" a b", whole=True) == key_of("a b ", whole=True) == "ab"
    assert key_of("ab", whole=False) is None
    assert key_of("a\ufffd", whole=True) == "a\ufffd"


def test_a_distribution_is_completed() -> None:
    distribution = completed({"a b": 0.5, "ab": 0.2, "c": 0.1})
    assert distribution == pytest.approx({"ab": 0.7, "c": 0.1, None: 0.2})
    assert completed({"a": 0.5, "b\ufffd": 0.3}) == pytest.approx({"a": 0.5, None: 0.5})
    whole = completed({"a": 1.0})
    assert 0 < whole[None] < 2e-4
    with pytest.raises(DraftwoodError, match=r"add up to 1\.200"):
        completed({"a": 0.7, "b": 0.5})


def test_what_the_distribution_does_not_name_counts_as_the_rest() -> None:
    distribution = completed({"a": 0.5, "b": 0.3})
    assert against_distribution(
        {"a": 50, "b": 30, "z": 12, None: 8}, distribution
    ).statistic == pytest.approx(0)
    assert against_distribution({"a": 30, "b": 30, "z": 40}, distribution).p_value < 1e-4


def test_samples_that_are_all_one_text() -> None:
    flat = completed({f"{i}": 0.05 for i in range(4)})
    with pytest.raises(DraftwoodError, match="too few"):
        against_distribution({"3": 20}, flat)
    assert chance_of_one({"3": 20}, flat) == pytest.approx(0.05**20)
    assert chance_of_one({"new": 60}, flat) == pytest.approx(0.8**60)
    assert chance_of_one({"3": 59, "4": 1}, flat) == 1


def test_two_samples_as_scipy_has_them() -> None:
    first: dict[Key, int] = {"a": 40, "b": 60, "c": 0}
    second: dict[Key, int] = {"a": 70, "b": 30, "c": 0}
    theirs = stats.chi2_contingency([[40, 60], [70, 30]], correction=False)
    found = two_samples(first, second)
    assert found.statistic == pytest.approx(theirs.statistic)
    assert found.p_value == pytest.approx(theirs.pvalue)
    with pytest.raises(DraftwoodError, match="too few"):
        two_samples({"a": 100}, {"a": 100})


def test_rare_outcomes_of_two_samples_share_bins() -> None:
    many: dict[Key, int] = {f"rare {i}": 1 for i in range(30)}
    found = two_samples({"a": 70, **many}, {"a": 100})
    assert found.degrees == 3
    assert found.p_value < 1e-6


@pytest.mark.parametrize("two", [False, True])
def test_the_stated_distance_is_found_as_often_as_stated(two: bool) -> None:
    """With the difference that is hardest to find: between two halves of the probability."""
    rng = np.random.default_rng(5)
    bins, n = 10, 2000
    distribution = np.full(bins, 1 / bins)
    distance = power(bins - 1, (n, n) if two else (n,)).distance
    shifted = distribution + np.where(np.arange(bins) < bins // 2, 1, -1) * 2 * distance / bins
    assert np.abs(shifted - distribution).sum() / 2 == pytest.approx(distance)
    names = [str(i) for i in range(bins)]
    found = right = 0
    for _ in range(300):
        bad, good, other = (
            rng.multinomial(n, p).tolist() for p in (shifted, distribution, distribution)
        )
        for counts, is_bad in ((bad, True), (good, False)):
            sample: dict[Key, int] = dict(zip(names, counts, strict=True))
            if two:
                test = two_samples(sample, dict(zip(names, other, strict=True)))
            else:
                test = against_distribution(sample, completed(dict.fromkeys(names, 1 / bins)))
            found += is_bad and test.p_value < LEAST_P
            right += not is_bad and test.p_value < LEAST_P
    assert found / 300 == pytest.approx(POWER, abs=0.08)
    assert right <= 3


def test_more_samples_find_smaller_distances() -> None:
    assert power(20, (1200,)).distance == pytest.approx(power(20, (300,)).distance / 2)
    assert power(20, (300, 300)).distance == pytest.approx(
        power(20, (300,)).distance * math.sqrt(2)
    )


def sample(*tokens: tuple[str, dict[str, float]]) -> Choice:
    found = [
        Token(own, math.log(top[own]), tuple((t, math.log(p)) for t, p in top.items()))
        for own, top in tokens
    ]
    return Choice("".join(own for own, _ in tokens), "length", tuple(found))


def test_the_distribution_of_samples() -> None:
    root = {"a": 0.6, "b": 0.3, "<end>": 0.05}
    after_a, after_b = {"c": 0.5, "d": 0.25}, {"c": 0.9}
    samples = [sample(("a", root), ("c", after_a)), sample(("b", root), ("c", after_b))]
    distribution = distribution_of(samples, 2, 0)
    assert distribution == pytest.approx({"ac": 0.3, "ad": 0.15, "bc": 0.27})
    kept = distribution_of(samples, 2, 2)
    assert kept == pytest.approx({"ac": 2 / 3 * 2 / 3, "ad": 2 / 3 * 1 / 3, "bc": 1 / 3})
    assert sum(kept.values()) == pytest.approx(1)
    assert distribution_of([Choice("x y", "length", samples[0].tokens)], 2, 0) == {}
    bytewise = {"a": 0.6, "bytes:\\xc3": 0.3}
    part = [sample(("a", root), ("a", bytewise))]
    assert distribution_of(part, 2, 0) == pytest.approx({"aa": 0.36}), "half a character is no text"
    one = distribution_of(samples[:1], 2, 0)
    assert one == pytest.approx({"ac": 0.3, "ad": 0.15}), "b was not sampled, so it is not known"
