"""First differences of runs from the reference's runs, and what explains them."""

from collections.abc import Sequence

import pytest

from draftwood.lab.bench.divergence import compare, divergences, explain, references
from draftwood.lab.bench.document import Divergence
from draftwood.lab.bench.margins import Margin
from tests.factories.bench_rows import run, turn

FIRST = run(turn((1, 2)), run_seed=0)
OTHER = run(turn((5, 6)), run_seed=1)
AGAIN = run(turn((1, 9)), run_seed=0, repeat=1)


def test_equal_tokens_do_not_diverge() -> None:
    assert not [*divergences(run(turn((1, 2)), turn((3,))), run(turn((1, 2)), turn((3,))))]


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        ((1, 2, 9), Divergence("a/0", 5, 0, 0, 2, 3, 9)),
        ((1, 2), Divergence("a/0", 5, 0, 0, 2, 3, None)),
        ((1, 2, 3, 4), Divergence("a/0", 5, 0, 0, 3, None, 4)),
    ],
)
def test_finds_the_first_difference(tokens: tuple[int, ...], wanted: Divergence) -> None:
    [found] = divergences(run(turn(tokens), run_seed=5), run(turn((1, 2, 3)), run_seed=5))
    assert found == wanted


def test_a_later_turn_is_named() -> None:
    [found] = divergences(run(turn((1,)), turn((5,))), run(turn((1,)), turn((6,))))
    assert (found.turn, found.position) == (1, 0)


def test_a_fault_is_shown_rather_than_a_near_tie_of_an_earlier_turn() -> None:
    wanted, got = run(turn((1, 2)), turn((5, 6))), run(turn((1, 3)), turn((5, 99)))
    assert [each.turn for each in divergences(got, wanted)] == [0, 1]

    def ask(tokens: Sequence[int], between: Sequence[int], seed: int) -> Margin:
        return Margin(gap=9.0 if 99 in between else 0.0, bound=0.5)

    [shown] = compare([got], {("a/0", got.run_seed): wanted}, ask).divergences
    assert (shown.turn, shown.fault) == (1, True)


def test_explain_asks_for_both_tokens_behind_the_reference_up_to_the_difference() -> None:
    asked: list[tuple[tuple[int, ...], tuple[int, ...], int]] = []

    def ask(tokens: Sequence[int], between: Sequence[int], seed: int) -> Margin:
        asked.append((tuple(tokens), tuple(between), seed))
        return Margin(gap=0.25, bound=0.5)

    reference = run(turn((4, 5, 6), context=(1, 2)), run_seed=3)
    found = explain(Divergence("a/0", 5, 0, 0, 2, 6, 9), reference, ask)
    assert asked == [((1, 2, 4, 5), (6, 9), 3)]
    assert (found.gap, found.bound, found.near_tie) == (0.25, 0.5, True)
    assert not found.fault
    far = explain(Divergence("a/0", 5, 0, 0, 2, 6, 9), reference, lambda *_: Margin(0.6, 0.5))
    assert far.fault


def test_an_answer_that_ends_elsewhere_is_a_fault() -> None:
    reference = run(turn((4, 5, 6), context=(1, 2)))
    for expected, got in ((6, None), (None, 6)):
        found = explain(Divergence("a/0", 5, 0, 0, 2, expected, got), reference, _never)
        assert (found.gap, found.bound, found.fault) == (None, None, True)


def test_what_was_not_explained_is_no_fault() -> None:
    assert not Divergence("a/0", 5, 0, 0, 2, 6, 9).fault


def _never(tokens: Sequence[int], between: Sequence[int], seed: int) -> Margin:
    raise AssertionError((tokens, between))


def by_seed(tokens: Sequence[int], between: Sequence[int], seed: int) -> Margin:
    return Margin(gap=float(seed), bound=0.5)


def test_the_reference_is_its_first_run_of_every_prompt_and_seed() -> None:
    goose = run(turn((7,)), method="goose")
    assert references([goose, FIRST, OTHER, AGAIN], "ar") == {("a/0", 0): FIRST, ("a/0", 1): OTHER}


def test_seeds_are_compared_apart() -> None:
    against = references([FIRST, OTHER], "ar")
    same = [run(turn((1, 2)), method="x"), run(turn((5, 6)), method="x", run_seed=1)]
    assert [row.identical for row in compare(same, against, by_seed).rows] == [True, True]
    swapped = [run(turn((5, 6)), method="x"), run(turn((1, 2)), method="x", run_seed=1)]
    found = compare(swapped, against, by_seed)
    assert [row.identical for row in found.rows] == [False, False]
    assert found.divergences == [
        Divergence("a/0", 0, 0, 0, 0, 1, 5, 0.0, 0.5, near_tie=True),
        Divergence("a/0", 1, 0, 0, 0, 5, 1, 1.0, 0.5, near_tie=False),
    ]
    unexplained = compare(swapped, against, None).divergences
    assert [each.near_tie for each in unexplained] == [None, None]


def test_the_reference_is_compared_with_its_own_first_run() -> None:
    found = compare([FIRST, AGAIN], references([FIRST, AGAIN], "ar"), by_seed)
    assert [row.identical for row in found.rows] == [None, False]
    assert [(d.repeat, d.position) for d in found.divergences] == [(1, 1)]


def test_nothing_to_compare_with_is_not_a_difference() -> None:
    found = compare([OTHER], references([FIRST], "ar"), by_seed)
    assert [row.identical for row in found.rows] == [None]
    assert found.divergences == []
