"""Traversal Verification: the paper's example in fractions, and Algorithm 3 on random trees."""

from fractions import Fraction

import pytest

from draftwood.protocols import Verdict
from draftwood.tree import ROOT, Draw
from draftwood.verifiers.block import Block
from draftwood.verifiers.rejection import Rejection
from draftwood.verifiers.traversal import Traversal
from tests.verifiers.draft_shapes import chain, flat
from tests.verifiers.exact_law import (
    committed_law,
    difference,
    every_draft,
    every_verdict,
    mean_accepted,
)
from tests.verifiers.small_laws import (
    Dice,
    Drafting,
    Given,
    Grow,
    Script,
    always,
    case_of,
    drawn,
    example,
    law_of,
)

P = always(0.3, 0.4, 0.3)
X1, X2, X3, X4, X5 = 1, 2, 3, 4, 5


def test_the_papers_example() -> None:
    script = Script()
    assert Traversal().verify([case_of(example(), P, script)]) == [Verdict((), 2)]
    expected = {
        X3: Fraction(2, 3),
        X4: Fraction(7, 11),
        X1: Fraction(0),
        X5: Fraction(2, 9),
        X2: Fraction(3, 53),
    }
    assert list(script.probabilities) == list(expected)
    assert script.probabilities == pytest.approx(
        {v: float(x) for v, x in expected.items()}, abs=1e-15
    )


def test_stopping_probabilities_of_the_papers_example() -> None:
    ends = {
        (X1, X3): Fraction(2, 3),
        (X1, X4): Fraction(7, 33),
        (X2, X5): Fraction(8, 297),
        (X2,): Fraction(28, 5247),
        (): Fraction(1400, 15741),
    }
    bonus = dict.fromkeys(ends, (Fraction(3, 10), Fraction(4, 10), Fraction(3, 10)))
    bonus[(X2,)] = bonus[()] = (Fraction(0), Fraction(0), Fraction(1))
    (outcomes,) = every_verdict(Traversal(), [example()], P)
    found: dict[tuple[tuple[int, ...], int], float] = {}
    for verdict, weight in outcomes:
        key = (verdict.path, verdict.bonus)
        found[key] = found.get(key, 0.0) + weight
    expected = {
        (path, token): float(end * share)
        for path, end in ends.items()
        for token, share in enumerate(bonus[path])
        if share
    }
    assert found == pytest.approx(expected, abs=1e-15)


def test_it_accepts_more_of_a_chain_than_token_level() -> None:
    draft = drawn(chain(2), Given(0, 1), always(0.6, 0.3, 0.1))
    ends = []
    for verifier in (Traversal(), Block(), Rejection()):
        (outcomes,) = every_verdict(verifier, [draft], P)
        ends.append(sum(weight for verdict, weight in outcomes if len(verdict.path) == 2))
    assert ends == pytest.approx([2 / 3, 2 / 3, 1 / 2], abs=1e-15)


def test_a_chain_may_be_deep() -> None:
    law = always(0.5, 0.5)
    draft = drawn(chain(1200), Dice(0), law)
    [verdict] = Traversal().verify([case_of(draft, law, Script(1200))])
    assert len(verdict.path) == 1200


def test_siblings_are_tested_in_drawing_order() -> None:
    def swapped(drafting: Drafting) -> None:
        first, second = drafting.sample(ROOT, 2)
        drafting.sample(second, 1)
        drafting.sample(first, 2)

    # The same tree as in the paper's example, its deeper nodes numbered otherwise.
    draft = drawn(swapped, Given(0, 1, 0, 1, 2), always(0.6, 0.3, 0.1))
    script = Script()
    Traversal().verify([case_of(draft, P, script)])
    assert list(script.probabilities) == [4, 5, 1, 3, 2]
    assert list(script.probabilities.values()) == pytest.approx([2 / 3, 7 / 11, 0, 2 / 9, 3 / 53])


@pytest.mark.parametrize("draw", [Draw.WITHOUT_REPLACEMENT, Draw.IID])
def test_on_one_level_it_equals_rejection(draw: Draw) -> None:
    for seed in range(4):
        drafts, law = every_draft(flat(3, draw), law_of(seed + 10)), law_of(seed)
        one, other = (committed_law(rule, drafts, law) for rule in (Traversal(), Rejection()))
        assert difference(one, other) < 1e-15


def test_it_accepts_more_if_the_first_drawn_has_the_deepest_subtree() -> None:
    def below_sibling(number: int) -> Grow:
        def grow(drafting: Drafting) -> None:
            (node,) = drafting.sample(ROOT, 1)
            (child,) = drafting.sample(drafting.sample(node, 2)[number], 1)
            drafting.sample(child, 1)

        return grow

    def gain(number: int) -> float:
        drafts = every_draft(below_sibling(number), law_of(83, zeros=0))
        law = law_of(73, zeros=0)
        laws = [committed_law(rule, drafts, law) for rule in (Traversal(), Rejection())]
        return mean_accepted(laws[0]) - mean_accepted(laws[1])

    assert gain(0) > 0.05
    assert gain(1) < -0.1, "it is not always better"
