"""First differences, and what explains them."""

from collections.abc import Sequence

import pytest

from draftwood.lab.bench.divergence import divergence, explain
from draftwood.lab.bench.document import Divergence
from draftwood.lab.bench.margins import Margin
from tests.factories.bench_rows import run, turn


def test_equal_tokens_do_not_diverge() -> None:
    assert divergence(run(turn((1, 2)), turn((3,))), run(turn((1, 2)), turn((3,)))) is None


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        ((1, 2, 9), Divergence("a/0", 5, 0, 0, 2, 3, 9)),
        ((1, 2), Divergence("a/0", 5, 0, 0, 2, 3, None)),
        ((1, 2, 3, 4), Divergence("a/0", 5, 0, 0, 3, None, 4)),
    ],
)
def test_finds_the_first_difference(tokens: tuple[int, ...], wanted: Divergence) -> None:
    assert divergence(run(turn(tokens), run_seed=5), run(turn((1, 2, 3)), run_seed=5)) == wanted


def test_a_later_turn_is_named() -> None:
    found = divergence(run(turn((1,)), turn((5,))), run(turn((1,)), turn((6,))))
    assert found is not None
    assert (found.turn, found.position) == (1, 0)


def test_explain_asks_for_both_tokens_behind_the_reference_up_to_the_difference() -> None:
    asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def ask(tokens: Sequence[int], between: Sequence[int]) -> Margin:
        asked.append((tuple(tokens), tuple(between)))
        return Margin(gap=0.25, bound=0.5)

    reference = run(turn((4, 5, 6), context=(1, 2)))
    found = explain(Divergence("a/0", 5, 0, 0, 2, 6, 9), reference, ask)
    assert asked == [((1, 2, 4, 5), (6, 9))]
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


def _never(tokens: Sequence[int], between: Sequence[int]) -> Margin:
    raise AssertionError((tokens, between))
