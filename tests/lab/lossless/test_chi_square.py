"""Counts against a law: the statistic by hand and by SciPy, and what is never given."""

import math

import numpy as np
import pytest
from scipy import stats

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.chi_square import chi_square


def test_a_fair_die_by_hand() -> None:
    test = chi_square({1: 12, 2: 8}, {1: 0.5, 2: 0.5})
    assert test.statistic == pytest.approx(0.8)
    assert test.degrees == 1
    assert test.p_value == pytest.approx(math.erfc(math.sqrt(0.4)))


def test_as_scipy_has_it() -> None:
    rng = np.random.default_rng(3)
    law = rng.dirichlet([4.0] * 20)
    for counts in (rng.multinomial(4000, law), rng.multinomial(4000, [0.05] * 20)):
        test = chi_square(dict(enumerate(counts.tolist())), dict(enumerate(law.tolist())))
        theirs = stats.chisquare(counts, law * 4000)
        assert test.statistic == pytest.approx(theirs.statistic)
        assert test.p_value == pytest.approx(theirs.pvalue, abs=1e-300)
        assert test.degrees == 19


def test_rare_outcomes_share_cells() -> None:
    law = {"a": 0.9, "b": 0.04, "c": 0.03, "d": 0.02, "e": 0.01}
    test = chi_square({"a": 90, "b": 4, "c": 3, "d": 2, "e": 1}, law)
    assert test.statistic == pytest.approx(0)
    assert test.degrees == 1  # d, c and e; then b with a, for it has nobody else
    test = chi_square({"a": 90, "d": 10}, law)
    assert test.statistic == pytest.approx(4**2 / 6 + 4**2 / 94)
    even = chi_square(dict.fromkeys(range(5), 4), dict.fromkeys(range(5), 0.2))
    assert even.degrees == 1
    assert even.statistic == pytest.approx(0)


def test_what_cannot_be_refutes_the_law() -> None:
    for law in ({1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5, 3: 0.0}):
        test = chi_square({1: 500, 2: 499, 3: 1}, law)
        assert test.p_value == 0
        assert test.statistic == math.inf
    assert chi_square({1: 5, 2: 5, 3: 0}, {1: 0.5, 2: 0.5}).p_value == 1


def test_too_few_samples() -> None:
    with pytest.raises(DraftwoodError, match="9 samples are too few"):
        chi_square({1: 5, 2: 4}, {1: 0.5, 2: 0.5})


def test_its_p_values_are_even() -> None:
    rng = np.random.default_rng(0)
    law = dict(enumerate(rng.dirichlet([1.0] * 12).tolist()))
    values = [
        chi_square(dict(enumerate(rng.multinomial(600, list(law.values())).tolist())), law).p_value
        for _ in range(400)
    ]
    assert stats.kstest(values, "uniform").pvalue > 0.01
