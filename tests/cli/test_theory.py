"""``draftwood theory``: hand-worked numbers, the tables of docs/theory.md, and wrong input."""

import json
from typing import Any

import pytest

from draftwood.cli.theory import Bound, predict
from draftwood.lab.theory.dominance import (
    paid_spine_yield,
    printed_spine_yield,
)
from draftwood.lab.theory.yields import AcceptanceRates, eq1_bound
from tests.factories.command_line import output_of, refused


def document(*argv: str) -> dict[str, Any]:
    out = output_of("theory", *argv, "--json")
    assert len(out.splitlines()) == 1
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_a_case_worked_by_hand() -> None:
    """Both rates 1/2, two nodes: r = 0.5 leaves a spine of floor(3 / 2) = 1 token."""
    assert document("--ps", "0.5", "--pt", "0.5", "--budget", "2", "--depth", "2") == {
        "p_s": 0.5,
        "p_t": 0.5,
        "budget": 2,
        "branch_depth": 2,
        "match_length": 20,
        # 1/2 + (1/2)(1/2)(1 + 1/2) + 1; a spine of two has no branches: 1.75.
        "bound_printed": {"spine": 1, "tokens_per_step": 1.875},
        "bound_paid": {"spine": 1, "tokens_per_step": 1.75},
        "spine": 1,
        # A branch beside the spine is entered with 1/2, one at its tip as well: the earlier wins.
        "optimal": {"widths": [1, 0], "unspent": 0, "tokens_per_step": 1.75},
        # The root gets floor(1 / 2) = 0 of the branches, the tip the one that is left.
        "harmonic": {"widths": [0, 1], "unspent": 0, "tokens_per_step": 1.75},
        # A chain, 1 + 1/2 + 1/4, and two leaves, 1 + 3/4, are equally good.
        "isotropic": {"fan_out": 1, "tokens_per_step": 1.75},
        "algorithm1": 1.75,
        "best_one_rate": 1.75,
        "best_two_rates": 1.75,
    }


@pytest.mark.parametrize(
    ("p_s", "p_t", "widths", "harmonic", "best", "optimal"),
    [
        (0.21, 0.033, (20, 6, 3, 2, 1, 1, 1), 1.686, (41,), 1.856),
        (0.6, 0.05, (19, 5, 2, 1, 1, 1), 2.826, (23, 13, 3), 2.914),
        (0.8, 0.05, (19, 5, 2, 1, 1, 1), 5.140, (16, 12, 8, 3), 5.197),
    ],
)
def test_the_widths_are_those_of_table_3(
    p_s: float,
    p_t: float,
    widths: tuple[int, ...],
    harmonic: float,
    best: tuple[int, ...],
    optimal: float,
) -> None:
    found = predict(AcceptanceRates(p_s, p_t), 59, 6, 20)
    zeros = (0,) * 20
    assert found.harmonic.widths == (widths + zeros)[: found.spine + 1]
    assert found.optimal.widths == (best + zeros)[: found.spine + 1]
    assert found.harmonic.unspent == 59 - found.spine - sum(widths)
    assert found.optimal.unspent == 0
    assert round(found.harmonic.tokens_per_step, 3) == harmonic
    assert round(found.optimal.tokens_per_step, 3) == optimal


def test_the_bound_is_taken_at_the_best_spine_that_the_match_allows() -> None:
    rates = AcceptanceRates(0.6, 0.05)
    printed = [printed_spine_yield(59, m, rates, 6) for m in range(1, 21)]
    paid = [paid_spine_yield(59, m, rates, 6) for m in range(1, 21)]
    found = predict(rates, 59, 6, 20)
    assert found.bound_printed == Bound(printed.index(max(printed)) + 1, max(printed))
    assert found.bound_paid == Bound(paid.index(max(paid)) + 1, max(paid))
    short = predict(rates, 59, 6, 3)
    assert short.bound_printed == Bound(3, printed[2])
    assert short.spine == 3


def test_depth_is_the_branches_length_in_eq_1() -> None:
    rates = AcceptanceRates(0.6, 0.2)
    for depth in (1, 3):
        found = predict(rates, 1 + 4, depth, 1).bound_printed
        assert found == Bound(1, eq1_bound(1, [4], rates, depth))
    one = predict(rates, 5, 1, 1)
    assert one.bound_printed == one.bound_paid


@pytest.mark.parametrize("rates", [(0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.2, 0.7)])
def test_without_a_budget_there_is_only_the_bonus(rates: tuple[float, float]) -> None:
    found = predict(AcceptanceRates(*rates), 0, 6, 20)
    assert found.bound_printed == found.bound_paid == Bound(0, 1.0)
    assert found.optimal == found.harmonic
    assert found.optimal.widths == (0,)
    assert found.isotropic.tokens_per_step == found.algorithm1 == 1.0
    assert found.best_one_rate == found.best_two_rates == found.optimal.tokens_per_step == 1.0


def test_certain_tokens_are_all_accepted() -> None:
    found = predict(AcceptanceRates(1.0, 1.0), 5, 6, 20)
    assert found.best_two_rates == found.best_one_rate == found.isotropic.tokens_per_step == 6.0
    assert found.isotropic.fan_out == 1
    assert found.bound_paid == Bound(5, 6.0)


def test_people_see_the_same_numbers() -> None:
    out = output_of("theory", "--ps", "0.6", "--pt", "0.05", "--budget", "59")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "Eq. 1, spine of 10, budget as printed 2.988",
        "Eq. 1, spine of 10, every node counted 2.963",
        "GOOSE's tree (Algorithm 1), spine of 20 2.752",
        "best tree of both sources 2.963",
        "best tree of transitions alone 1.952",
        "best isotropic tree, fan-out 59 1.952",
        f"optimal 23 13 3{' 0' * 18} 0 2.914",
        f"harmonic 19 5 2 1 1 1{' 0' * 15} 10 2.826",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--ps", "1.5", "--pt", "0.1"], "p_s is 1.5; give a probability between 0 and 1"),
        (["--ps", "0.5", "--pt", "-0.1"], "p_t is -0.1; give a probability"),
        (["--ps", "nan", "--pt", "0.1"], "p_s is nan"),
        (["--ps", "0.5", "--pt", "0.1", "--budget", "-1"], "-1 is not in the range 0<=x<=1000"),
        (["--ps", "0.5", "--pt", "0.1", "--budget", "1001"], "1001 is not in the range"),
        (["--ps", "0.5", "--pt", "0.1", "--depth", "0"], "0 is not in the range"),
        (["--ps", "0.5", "--pt", "0.1", "--match", "0"], "0 is not in the range"),
        (["--ps", "0.5"], "Missing option '--pt'"),
        (["--ps", "half", "--pt", "0.1"], "'half' is not a valid float"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(argv: list[str], complaint: str) -> None:
    assert complaint in refused("theory", *argv)
