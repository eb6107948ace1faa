"""A benchmark in a line for each method."""

from collections.abc import Sequence

import pytest

from draftwood.engine.stats import Tally
from draftwood.lab.bench.aggregate import Baselines, method_entry
from draftwood.lab.bench.document import SCHEMA, Divergence, Document
from draftwood.lab.bench.figures import RunRow
from runs.table_lines import lines, sign_test
from tests.factories.bench_rows import row


def rows(seconds: Sequence[float], *, identical: bool | None = None) -> list[RunRow]:
    """A row of 10 tokens in 5 steps for each group."""
    tally = Tally(steps=5, committed=10)
    return [
        row(f"a/{n}", group=n, seconds=each, identical=identical, tally=tally)
        for n, each in enumerate(seconds)
    ]


def test_each_method_has_a_line() -> None:
    plain = rows([1.0] * 6)
    fast = [
        *rows([0.5, 0.4, 0.5, 0.4], identical=True),
        *rows([0, 0, 0, 0, 2.0, 2.0], identical=False)[4:],
    ]
    near, other = (
        Divergence(f"a/{n}", 0, 0, 0, 4, 7, 8, gap=0.0625, bound=0.5, near_tie=True) for n in (4, 5)
    )
    against = Baselines(ar=plain)
    methods = {
        "ar": method_entry("ar", plain, against, [], {}),
        "goose": method_entry("goose", fast, against, [near, other], {}),
    }
    for complete, note in ((True, ""), (False, ", incomplete")):
        document = Document(SCHEMA, complete, {}, methods, {}, ())
        head, ar, goose = lines("8b greedy_1", document)
        assert head.startswith(f"8b greedy_1{note}: tok/s;")
        assert ar == "  ar    10.0 [10.0-10.0]; τ 2.00 [2.00-2.00]; loops 0%"
        assert goose == (
            "  goose 20.0 [5.0-25.0]; 2.00 [0.50-2.50] 4/6 p=0.7; τ 2.00 [2.00-2.00]; loops 0%; "
            "same 4/6, 2 rounded (gap <= 0.062)"
        )


def test_without_plain_decoding_there_is_no_speed_up() -> None:
    document = Document(
        SCHEMA, False, {}, {"ar": method_entry("ar", [], Baselines(), [], {})}, {}, ()
    )
    assert [*lines("x", document)][1] == "  ar -; τ -; loops -"


@pytest.mark.parametrize(
    ("seconds", "found"),
    [([0.5] * 8, (8, 8, 2 / 2**8)), ([0.5, 2.0], (1, 2, 1.0)), ([], (0, 0, 1))],
)
def test_sign_test(seconds: list[float], found: tuple[int, int, float]) -> None:
    assert sign_test(rows(seconds), rows([1.0] * 8)) == pytest.approx(found)


def test_a_group_counts_once_whatever_its_seeds() -> None:
    fast = [row(group=0, run_seed=seed, seconds=each) for seed, each in enumerate((0.5, 0.5, 2.0))]
    plain = [row(group=0, run_seed=seed) for seed in range(3)]
    assert sign_test(fast, plain) == (1, 1, 1.0)
