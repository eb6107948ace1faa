"""Block Verification: on chains it is Traversal and beats token level; trees are refused."""

import pytest

from draftwood.errors import DraftwoodError
from draftwood.tree import Draw
from draftwood.verifiers.block import Block
from draftwood.verifiers.rejection import Rejection
from draftwood.verifiers.traversal import Traversal
from draftwood.verifiers.walk import Walk
from tests.verifiers.draft_shapes import CHAINS, binary, chain, declared_known
from tests.verifiers.exact_law import committed_law, difference, every_draft, mean_accepted
from tests.verifiers.small_laws import (
    Dice,
    Given,
    Grow,
    Script,
    always,
    case_of,
    drawn,
    law_of,
)

Q = always(0.6, 0.3, 0.1)


def test_a_chain_in_fractions() -> None:
    # After a: P = 1/2, and a may stay with S = .15 - .1 of P p - q: h = .05 / .55. Then b: 2/3.
    draft = drawn(chain(2), Given(0, 1), Q)
    script = Script()
    Block().verify([case_of(draft, always(0.3, 0.4, 0.3), script)])
    assert list(script.probabilities) == [2, 1], "the longest prefix first"
    assert script.probabilities == pytest.approx({2: 2 / 3, 1: 1 / 11}, abs=1e-15)
    assert (script.weights / script.weights.sum()).tolist() == pytest.approx([0, 1 / 3, 2 / 3])


@pytest.mark.parametrize("grow", CHAINS.values(), ids=CHAINS.keys())
def test_it_equals_traversal_on_chains(grow: Grow) -> None:
    for seed in range(6):
        drafts, law = every_draft(grow, law_of(seed + 10)), law_of(seed)
        block, traversal = (committed_law(rule, drafts, law) for rule in (Block(), Traversal()))
        assert difference(block, traversal) < 1e-14


@pytest.mark.parametrize("grow", CHAINS.values(), ids=CHAINS.keys())
def test_it_accepts_no_less_than_token_level(grow: Grow) -> None:
    gains = []
    for seed in range(6):
        drafts, law = every_draft(grow, law_of(seed + 10)), law_of(seed)
        block, token_level = (committed_law(rule, drafts, law) for rule in (Block(), Rejection()))
        gains.append(mean_accepted(block) - mean_accepted(token_level))
    assert min(gains) > -1e-14
    assert max(gains) > 0.03 or grow is CHAINS["one"]


def test_a_sampled_tree_that_branches_is_refused() -> None:
    draft = drawn(binary(Draw.IID), Dice(0), Q)
    with pytest.raises(DraftwoodError, match="block verification judges chains"):
        Block().verify([case_of(draft, Q, Script())])
    known = declared_known(draft)
    assert Block().verify([case_of(known, Q, Script())]) == Walk().verify(
        [case_of(known, Q, Script())]
    )
    assert not Block().branching
    assert Draw.IID in Block().accepts
