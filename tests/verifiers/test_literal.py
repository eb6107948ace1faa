"""Verifiers against the papers' loops, node by node."""

from collections.abc import Callable

import pytest
import torch

from draftwood.protocols import Verifier
from draftwood.verifiers._residuals import Mode
from draftwood.verifiers.block import Block
from draftwood.verifiers.rejection import Rejection
from draftwood.verifiers.traversal import Traversal
from tests.factories import literal_rules
from tests.factories.literal_rules import Law, Result, Tree
from tests.verifiers import small_laws
from tests.verifiers.draft_shapes import CHAINS, TREES, chain, ragged
from tests.verifiers.exact_law import committed_law, difference
from tests.verifiers.small_laws import Dice, Draft, Grow, Script, case_of, drawn, forced, law_of

Judge = Callable[[Tree, Law], Result]
LINES: dict[str, Grow] = {**CHAINS, "long chain": chain(6)}
ALL: dict[str, Grow] = {**LINES, **TREES, "ragged": ragged(4, 3), "wide": ragged(2, 4)}
RULES: list[tuple[type[Verifier], Judge, dict[str, Grow]]] = [
    (Traversal, literal_rules.traversal, ALL),
    (Rejection, literal_rules.rejection, ALL),
    (Block, literal_rules.block, LINES),
]


def as_tree(draft: Draft) -> Tree:
    rows = [draft.drawn_from[node].tolist() for node in range(1, len(draft.tree))]
    return Tree(draft.tree.tokens.tolist(), draft.tree.parents.tolist(), [[], *rows])


def as_lists(law: small_laws.Law) -> Law:
    return lambda path: law(path).tolist()


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("vocab", [3, 4, 5])
@pytest.mark.parametrize(
    ("kind", "rule", "grow"),
    [
        pytest.param(kind, rule, grow, id=f"{kind.__name__}-{name}")
        for kind, rule, shapes in RULES
        for name, grow in shapes.items()
    ],
)
def test_it_equals_the_literal_loop(
    kind: type[Verifier], rule: Judge, grow: Grow, vocab: int, mode: Mode
) -> None:
    verifier = forced(kind, mode)
    for seed in range(5):
        law = law_of(seed, vocab)
        draft = drawn(grow, Dice(seed), law_of(seed + 100, vocab))
        judged, script = rule(as_tree(draft), as_lists(law)), Script()
        verifier.verify([case_of(draft, law, script)])
        assert not judged.asked or [*script.probabilities, 0] == list(judged.asked), "the order"
        reached = 1.0
        for node, probability in script.probabilities.items() if judged.asked else ():
            if reached < 1e-9:
                break
            assert probability == pytest.approx(judged.asked[node], abs=1e-12)
            reached *= 1 - probability
        for dtype, most in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
            found = committed_law(verifier, [(draft, 1.0)], law, dtype)
            assert difference(found, judged.output()) < most
