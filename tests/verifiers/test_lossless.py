"""Verifiers of sampled trees are lossless: over all trees that can be drawn, all decisions.

The same test must fail for trees that were meddled with after they were drawn.
"""

import pytest
import torch

from draftwood.protocols import Verifier
from draftwood.verifiers._residuals import Mode, SampledVerifier
from draftwood.verifiers.block import Block
from draftwood.verifiers.rejection import Rejection
from draftwood.verifiers.traversal import Traversal
from draftwood.verifiers.walk import Walk
from tests.verifiers.draft_shapes import (
    CHAINS,
    TREES,
    WRONG,
    declared_known,
    greedy_order,
    shared_noise,
)
from tests.verifiers.exact_law import committed_law, distance, every_draft
from tests.verifiers.small_laws import Grow, always, forced, law_of

LENGTH = 4
ALL = [
    pytest.param(forced(kind, mode), grow, id=f"{kind.__name__}-{mode.value}-{name}")
    for kinds, drafts in (((Traversal, Rejection, Block), CHAINS), ((Traversal, Rejection), TREES))
    for kind in kinds
    for mode in Mode
    for name, grow in drafts.items()
]


def loss(verifier: Verifier, grow: Grow, seed: int, dtype: torch.dtype = torch.float64) -> float:
    law = law_of(seed)
    drafts = every_draft(grow, law_of(seed + 10))
    return distance(committed_law(verifier, drafts, law, dtype), law, LENGTH)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("verifier", "grow"), ALL)
def test_the_joint_law_is_the_targets(verifier: Verifier, grow: Grow, seed: int) -> None:
    assert loss(verifier, grow, seed) < 1e-12


@pytest.mark.parametrize("kind", [Traversal, Rejection])
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_greedy_order_over_five_tokens(
    kind: type[SampledVerifier], mode: Mode, seed: int
) -> None:
    """So that what is drawn beside two likely tokens is not certain."""
    law = law_of(seed, 5)
    drafts = every_draft(greedy_order, law_of(seed + 10, 5))
    assert len(drafts) > 9
    assert distance(committed_law(forced(kind, mode), drafts, law), law, 3) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(("verifier", "grow"), ALL)
def test_in_single_precision_the_law_holds_up_to_rounding(verifier: Verifier, grow: Grow) -> None:
    assert loss(verifier, grow, 2, torch.float32) < 1e-6


@pytest.mark.parametrize("verifier", [Traversal(), Rejection()], ids=["traversal", "rejection"])
@pytest.mark.parametrize("grow", WRONG.values(), ids=WRONG.keys())
def test_changing_drawn_tokens_breaks_the_law(verifier: Verifier, grow: Grow) -> None:
    assert max(loss(verifier, grow, seed) for seed in range(4)) > 0.02


@pytest.mark.parametrize("grow", WRONG.values(), ids=WRONG.keys())
def test_declaring_changed_tokens_deterministic_restores_the_law(grow: Grow) -> None:
    law = law_of(0)
    drafts = [(declared_known(draft), weight) for draft, weight in every_draft(grow, law_of(10))]
    for verifier in (Walk(), Traversal(), Rejection()):
        assert distance(committed_law(verifier, drafts, law), law, LENGTH) < 1e-12


def test_subtrees_may_share_draws() -> None:
    drafts = every_draft(shared_noise, always(0.6, 0.3, 0.1))
    law = law_of(7)
    assert distance(committed_law(Traversal(), drafts, law), law, LENGTH) > 0.02
    # Rejection looks into one subtree only, so it cannot tell.
    assert distance(committed_law(Rejection(), drafts, law), law, LENGTH) < 1e-12
