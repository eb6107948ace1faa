"""Speeds of prompts on the page of results are those of the benchmark itself."""

from statistics import median

import numpy as np
import pytest

from draftwood.lab.bench.aggregate import Baselines, aggregate, speeds, without_looping
from draftwood.lab.bench.rows import Row
from tests.factories.bench_rows import row
from tests.lab.bench.kept_runs import module, needs_runs

pytestmark = needs_runs


def drawn(seed: int) -> list[Row]:
    """Two sets, groups of two, two seeds, three repeats, some loops."""
    chance = np.random.default_rng(seed)
    return [
        row(
            f"{name}/{i}",
            set=name,
            group=10 * (name == "b") + i // 2,
            repeat=repeat,
            run_seed=run_seed,
            tokens=int(chance.integers(5, 50)),
            seconds=float(chance.uniform(0.5, 2.0)),
            looping=bool(chance.random() < 0.05),
        )
        for name in ("a", "b")
        for i in range(6)
        for run_seed in (0, 1)
        for repeat in range(3)
    ]


@pytest.mark.parametrize("name", [None, "a"])
@pytest.mark.parametrize("loops", [True, False])
def test_speeds_and_ratios_are_the_benchmarks(name: str | None, *, loops: bool) -> None:
    prompts = module("prompts")
    fast, slow = drawn(1), drawn(2)
    expected = []
    found = []
    for rows in (fast, slow):
        kept = [each for each in rows if name in (None, each.set)]
        expected.append(kept if loops else without_looping(kept))
        entry = {"rows": [each.figures() for each in rows]}
        found.append(prompts.speeds(prompts.rows(entry, name, loops=loops)))
        assert found[-1] == speeds(expected[-1])
    assert (0 < len(found[0]) < 12) or (name is None and loops)
    wanted = aggregate(expected[0], Baselines(ar=expected[1])).speedup_vs_ar.median
    assert median(prompts.ratios(*found)) == pytest.approx(wanted)


def test_ratio_of_means_is_over_what_both_have() -> None:
    prompts = module("prompts")
    fast = {(0, 0): 10.0, (1, 0): 20.0, (1, 1): 40.0, (2, 0): 999.0}
    slow = {(0, 0): 10.0, (1, 0): 10.0, (1, 1): 10.0}
    assert prompts.ratio_of_means(fast, slow) == pytest.approx((10 + 30) / 20)
    assert prompts.ratio_of_means(fast, {}) is None
