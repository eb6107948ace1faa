"""Token-level rejection: the paper's example in fractions, and its definition node by node."""

from fractions import Fraction

import pytest

from draftwood.protocols import Verdict
from draftwood.tree import ROOT, Draw
from draftwood.verifiers.rejection import Rejection
from tests.verifiers.draft_shapes import flat
from tests.verifiers.exact_law import committed_law
from tests.verifiers.small_laws import (
    Drafting,
    Given,
    Script,
    always,
    case_of,
    drawn,
    example,
)

P = always(0.3, 0.4, 0.3)


def test_the_papers_example() -> None:
    judged = committed_law(Rejection(), [(example(), 1.0)], P)
    ends = {
        (0, 1): (Fraction(1, 2), (Fraction(3, 10), Fraction(4, 10), Fraction(3, 10))),
        (1, 0): (Fraction(1, 9), (Fraction(3, 10), Fraction(4, 10), Fraction(3, 10))),
        (1,): (Fraction(1, 9), (Fraction(0), Fraction(1, 3), Fraction(2, 3))),
        (): (Fraction(5, 18), (Fraction(0), Fraction(0), Fraction(1))),
    }
    expected = {
        (*path, token): float(end * share)
        for path, (end, bonus) in ends.items()
        for token, share in enumerate(bonus)
        if share
    }
    assert judged == pytest.approx(expected, abs=1e-15)


def test_it_stops_at_the_first_node_whose_children_are_all_rejected() -> None:
    script = Script()
    assert Rejection().verify([case_of(example(), P, script)]) == [Verdict((), 2)]
    assert script.probabilities == pytest.approx({1: 1 / 2, 2: 4 / 9})
    script = Script(2)
    assert Rejection().verify([case_of(example(), P, script)]) == [Verdict((2,), 2)]
    assert script.probabilities == pytest.approx({1: 1 / 2, 2: 4 / 9, 5: 1 / 2})
    assert script.depth == 1
    assert (script.weights / script.weights.sum()).tolist() == pytest.approx([0, 1 / 3, 2 / 3])


def test_with_replacement_an_equal_sibling_changes_the_residual() -> None:
    # p = (.2, .4, .4), q = (.6, .3, .1): after a, (0, .1, .3) / .4; after a again,
    # (0, .25 - .3, .75 - .1) leaves c alone.
    draft = drawn(flat(2, Draw.IID), Given(0, 0), always(0.6, 0.3, 0.1))
    script = Script()
    assert Rejection().verify([case_of(draft, always(0.2, 0.4, 0.4), script)]) == [Verdict((), 2)]
    assert script.probabilities == pytest.approx({1: 1 / 3, 2: 0.0})
    assert (script.weights / script.weights.sum()).tolist() == pytest.approx([0, 0, 1])


def test_a_deterministic_token_after_a_sampled_one() -> None:
    # c is known, so q = (2/3, 1/3, 0). After a, R = (0, .4 - 1/3, .3), of which c has 9/11; as it
    # is known to come, it is taken with what is left of its p, and b remains.
    def grow(drafting: Drafting) -> None:
        drafting.sample(ROOT, 1, exclude=[2])
        drafting.put(ROOT, 2)

    draft = drawn(grow, Given(0), always(0.6, 0.3, 0.1))
    script = Script()
    assert Rejection().verify([case_of(draft, P, script)]) == [Verdict((), 1)]
    assert script.probabilities == pytest.approx({1: 0.3 / (2 / 3), 2: 9 / 11})
