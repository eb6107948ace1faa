"""Fitting: exact where samples are, plausible under noise, silent where they say nothing."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.costs.curve import Curve
from draftwood.costs.fit import HostSample, Sample, fit, fit_host
from draftwood.errors import DraftwoodError

TRUE = Curve((1, 2, 4, 8), (5e-3, 6e-3, 6e-3, 9e-3), 2e-6, 3e-8, 4e-4)


def samples(
    curve: Curve, contexts: tuple[int, ...], batches: tuple[int, ...], noise: float = 0.0
) -> list[Sample]:
    rng = np.random.default_rng(0)
    return [
        Sample(n, c * b, b, curve.seconds(n, c * b, b) * float(np.exp(noise * rng.normal())))
        for n, c, b in product((1, 2, 4, 8), contexts, batches)
    ]


def test_exact_samples_are_fitted_exactly() -> None:
    found = fit(samples(TRUE, (64, 512), (1, 4)))
    assert found.sizes == TRUE.sizes
    np.testing.assert_allclose(found.base, TRUE.base, rtol=1e-6)
    assert found.per_context == pytest.approx(TRUE.per_context)
    assert found.per_pair == pytest.approx(TRUE.per_pair)
    assert found.per_sequence == pytest.approx(TRUE.per_sequence)


def test_terms_that_do_not_vary_are_part_of_the_table() -> None:
    found = fit(samples(TRUE, (64,), (1,)))
    assert found.per_context == found.per_pair == found.per_sequence == 0.0
    np.testing.assert_allclose(found.base, [TRUE.seconds(n, 64) for n in TRUE.sizes], rtol=1e-9)


@given(st.lists(st.floats(1e-4, 1e-1), min_size=16, max_size=16))
def test_any_times_give_a_curve_that_never_falls(times: list[float]) -> None:
    cells = product((1, 2, 4, 8), (64, 512), (1, 4))
    found = fit([Sample(n, c * b, b, t) for (n, c, b), t in zip(cells, times, strict=True)])
    assert np.all(np.diff([found.seconds(n, 300, 2) for n in range(20)]) >= -1e-12)


def test_noise_is_averaged() -> None:
    found = fit(samples(TRUE, (64, 256, 512, 1024), (1, 2, 4), noise=0.03))
    for n in range(1, 9):
        assert found.seconds(n, 300) == pytest.approx(TRUE.seconds(n, 300), rel=0.05)


def test_a_batch_alone_begins_at_one_token_too() -> None:
    found = fit([Sample(4, 0, 4, 2.0), Sample(8, 0, 4, 3.0)])
    assert found.sizes == (1, 4, 8)
    np.testing.assert_allclose(found.base, (2.0, 2.0, 3.0))


def test_too_little_is_refused() -> None:
    with pytest.raises(DraftwoodError, match=r"sizes \[\] were timed"):
        fit([])
    with pytest.raises(DraftwoodError, match=r"sizes \[1\] were timed"):
        fit([Sample(1, 0, 1, 1.0), Sample(1, 9, 1, 1.0)])
    with pytest.raises(DraftwoodError, match="took no time"):
        fit([Sample(1, 0, 1, 0.0), Sample(2, 0, 1, 1.0)])
    with pytest.raises(DraftwoodError, match="no step was timed"):
        fit_host([])


@pytest.mark.parametrize(
    ("steps", "costs"),
    [
        # Exact steps, a pause among steps, and plain steps alone.
        (
            [
                HostSample(n, b, 1e-3 + 2e-5 * n + 3e-4 * (b - 1))
                for n in (0, 8, 59)
                for b in (1, 4)
            ],
            (1e-3, 2e-5, 3e-4),
        ),
        (
            [HostSample(n, 1, t) for n, t in ((0, 1e-3), (10, 2e-3)) for t in (*[t] * 5, 9.0)],
            (1e-3, 1e-4, 0.0),
        ),
        ([HostSample(0, 1, 1e-3)], (1e-3, 0.0, 0.0)),
    ],
)
def test_host_costs(steps: list[HostSample], costs: tuple[float, float, float]) -> None:
    assert fit_host(steps) == pytest.approx(costs)
