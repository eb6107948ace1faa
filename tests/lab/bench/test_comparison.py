"""Each run is held against the reference's run of the same prompt and seed."""

from dataclasses import replace

from draftwood.lab.bench.divergence import compare, references
from draftwood.lab.bench.document import Divergence
from draftwood.lab.bench.rows import Run
from tests.factories.bench_rows import run, turn

FIRST = run(turn((1, 2)), run_seed=0)
OTHER = run(turn((5, 6)), run_seed=1)
AGAIN = run(turn((1, 9)), run_seed=0, repeat=1)


def explain(found: Divergence, wrong: Run, reference: Run) -> Divergence:
    assert reference in (FIRST, OTHER)
    return replace(found, gap=float(wrong.run_seed))


def test_the_reference_is_its_first_run_of_every_prompt_and_seed() -> None:
    goose = run(turn((7,)), method="goose")
    assert references([goose, FIRST, OTHER, AGAIN], "ar") == {("a/0", 0): FIRST, ("a/0", 1): OTHER}


def test_seeds_are_compared_apart() -> None:
    against = references([FIRST, OTHER], "ar")
    same = [run(turn((1, 2)), method="x"), run(turn((5, 6)), method="x", run_seed=1)]
    assert [row.identical for row in compare(same, against, explain).rows] == [True, True]
    swapped = [run(turn((5, 6)), method="x"), run(turn((1, 2)), method="x", run_seed=1)]
    found = compare(swapped, against, explain)
    assert [row.identical for row in found.rows] == [False, False]
    assert found.divergences == [
        Divergence("a/0", 0, 0, 0, 0, 1, 5, gap=0.0),
        Divergence("a/0", 1, 0, 0, 0, 5, 1, gap=1.0),
    ]


def test_the_reference_is_compared_with_its_own_first_run() -> None:
    found = compare([FIRST, AGAIN], references([FIRST, AGAIN], "ar"), explain)
    assert [row.identical for row in found.rows] == [None, False]
    assert [(d.repeat, d.position) for d in found.divergences] == [(1, 1)]


def test_nothing_to_compare_with_is_not_a_difference() -> None:
    found = compare([OTHER], references([FIRST], "ar"), explain)
    assert [row.identical for row in found.rows] == [None]
    assert found.divergences == []
