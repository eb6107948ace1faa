"""Properties of all verifiers of sampled trees: batches, rounding, and the rows they read."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, ClassVar, NoReturn

import numpy as np
import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import EarlyVerifier, Verdict, Verification, Verifier
from draftwood.tree import ROOT, SAMPLED, Draw, tree_of
from draftwood.verifiers._residuals import Mode, SampledVerifier, judged_tree, judged_trees
from draftwood.verifiers._residuals.batched import read
from draftwood.verifiers.block import Block
from draftwood.verifiers.rejection import Rejection
from draftwood.verifiers.traversal import Traversal
from tests.verifiers.draft_shapes import CHAINS, TREES, binary, chain, declared_known, ragged
from tests.verifiers.exact_law import every_verdict
from tests.verifiers.small_laws import (
    CannedP,
    CannedQ,
    Dice,
    Draft,
    Drafting,
    Given,
    Grow,
    Law,
    Row,
    Script,
    always,
    case_of,
    drawn,
    example,
    forced,
    law_of,
    rows_along,
)

IN_ALL_MODES = [
    (forced(kind, mode), f"{kind.__name__}-{mode.value}")
    for kind in (Traversal, Rejection, Block)
    for mode in Mode
]
VERIFIERS = [pytest.param(verifier, id=name) for verifier, name in IN_ALL_MODES]
OF_TREES = [pytest.param(each, id=name) for each, name in IN_ALL_MODES if each.branching]
VOCAB = 20


def nothing(drafting: Drafting) -> None:
    """The root alone."""


def some_drafts(verifier: Verifier) -> list[tuple[Draft, Law]]:
    """Trees of many shapes, some without sampled nodes."""
    shapes = [*CHAINS.values(), chain(6), nothing]
    if verifier.branching:
        shapes += [*TREES.values(), ragged(4, 3), ragged(2, 4)]
    found = []
    for seed, grow in enumerate(shapes):
        draft = drawn(grow, Dice(seed), law_of(seed + 100, VOCAB))
        found += [(draft, law_of(seed, VOCAB)), (declared_known(draft), law_of(seed, VOCAB))]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_batch_equals_single_trees(verifier: Verifier, dtype: torch.dtype) -> None:
    drafts = some_drafts(verifier)
    for accepted in (-1, 1, 2, 4):
        alone, batched = ([Script(accepted) for _ in drafts] for _ in range(2))
        expected = [
            verifier.verify([case_of(draft, law, noise, dtype)])[0]
            for (draft, law), noise in zip(drafts, alone, strict=True)
        ]
        cases = [
            case_of(draft, law, noise, dtype)
            for (draft, law), noise in zip(drafts, batched, strict=True)
        ]
        assert verifier.verify(cases) == expected
        for one, other in zip(alone, batched, strict=True):
            assert one.probabilities == other.probabilities
            assert torch.equal(one.weights, other.weights)
            assert one.depth == other.depth
            assert other.weights.dtype == dtype


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_no_trees_no_verdicts(verifier: Verifier) -> None:
    assert verifier.verify([]) == []
    assert verifier.accepts == set(Draw)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_trees_without_sampled_nodes_are_walked(verifier: Verifier) -> None:
    draft = declared_known(drawn(chain(2), Given(1, 0), always(0.5, 0.5)))
    for grown, target, expected in (
        (draft, always(0.4, 0.6), Verdict((1,), 1)),
        (draft, always(0.7, 0.3), Verdict((), 0)),
        (drawn(nothing, Dice(0), always(1.0)), always(0.4, 0.6), Verdict((), 1)),
    ):
        script = Script()
        assert verifier.verify([case_of(grown, target, script)]) == [expected]
        assert script.probabilities == {}


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_after_a_leaf_the_bonus_is_drawn_from_p(verifier: Verifier) -> None:
    draft, law = drawn(chain(2), Given(1, 0), always(0.5, 0.5)), always(0.4, 0.6)
    script = Script(1 if isinstance(verifier, Rejection) else 2)
    if isinstance(verifier, Rejection):
        draft = drawn(chain(1), Given(1), always(0.5, 0.5))
    (verdict,) = verifier.verify([case_of(draft, law, script)])
    assert len(verdict.path) == draft.tree.depth
    assert script.weights.tolist() == [0.4, 0.6]
    assert script.depth == draft.tree.depth


class Forbidding(CannedP):
    """A target that has no answer after paths it excludes, as a logits processor may."""

    everywhere: ClassVar = False

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        for node in nodes:
            for above in self.tree.path(node):
                token, parent = self.tree.tokens[above], self.tree.parents[above]
                assert self.rows[parent][token] > 0, "asked beyond a token that p excludes"
        return super().probabilities(nodes)


def trees_with_excluded_tokens(verifier: Verifier) -> Iterator[tuple[Draft, Forbidding]]:
    target = law_of(3, zeros=1.0)
    shapes = [chain(4), *([binary(Draw.IID), ragged(4, 3)] if verifier.branching else [])]
    excluded = 0
    for seed, grow in product(range(20), shapes):
        draft = drawn(grow, Dice(seed), law_of(seed + 10, zeros=0.0))
        p = Forbidding(rows_along(draft.tree, target), draft.tree)
        edges = zip(draft.tree.parents[1:], draft.tree.tokens[1:], strict=True)
        excluded += sum(p.rows[parent][token] == 0 for parent, token in edges)
        yield draft, p
    assert excluded > 10


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_only_reachable_nodes_are_tested_and_once(verifier: Verifier) -> None:
    for draft, p in trees_with_excluded_tokens(verifier):
        verifier.verify([Verification(draft.tree, p, CannedQ(draft.q), Script())])
        asked = [node for nodes in p.asked for node in nodes]
        assert len(asked) == len(set(asked))
        assert set(asked) <= set(draft.tree.parents.tolist()), "a leaf needs no p"


@pytest.mark.parametrize("kind", [Traversal, Rejection, Block])
def test_batched_mode_reads_p_once_per_level(kind: type[Verifier]) -> None:
    verifier = forced(kind, Mode.BATCHED)
    for draft, p in trees_with_excluded_tokens(verifier):
        verifier.verify([Verification(draft.tree, p, CannedQ(draft.q), Script())])
        assert len(p.asked) <= draft.tree.depth


class Undefined(CannedP):
    """A target whose p after paths that it excludes is no distribution."""

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        found = super().probabilities(nodes)
        for row, node in zip(found, nodes, strict=True):
            row += torch.nan if self.excludes(node) else 0.0
        return found

    def excludes(self, node: int) -> bool:
        tokens, parents = self.tree.tokens, self.tree.parents
        return any(self.rows[parents[each]][tokens[each]] == 0 for each in self.tree.path(node))

    def draw(self, node: int, noise: Any) -> int:
        assert not self.excludes(node)
        return super().draw(node, noise)


class Possible(Script):
    """Noise that accepts no node whose probability is zero."""

    def accepts(self, node: int, probability: float) -> bool:
        return super().accepts(node, probability) and probability > 0


@pytest.mark.parametrize("kind", [Traversal, Rejection, Block])
def test_what_p_is_after_excluded_paths_does_not_matter(kind: type[Verifier]) -> None:
    verifier = forced(kind, Mode.BATCHED)
    for draft, p in trees_with_excluded_tokens(verifier):
        for accepted in (-1, 1, 3):
            scripts = Possible(accepted), Possible(accepted)
            one, other = (
                verifier.verify([Verification(draft.tree, each, CannedQ(draft.q), script)])
                for each, script in zip((p, Undefined(p.rows, p.tree)), scripts, strict=True)
            )
            assert one == other
            assert scripts[0].probabilities == scripts[1].probabilities
            assert torch.equal(scripts[0].weights, scripts[1].weights)


@pytest.mark.parametrize("kind", [Traversal, Rejection, Block])
def test_where_no_token_can_follow_is_told(kind: type[Verifier]) -> None:
    class Broken(CannedP):
        def draw(self, node: int, noise: object) -> int:
            raise DraftwoodError(f"no token can follow node {node}")

    draft = drawn(chain(3), Given(0, 1, 0), always(0.5, 0.5))
    rows = rows_along(draft.tree, always(0.5, 0.5))
    rows[1] = rows[1] + np.nan
    case = Verification(draft.tree, Broken(rows, draft.tree), CannedQ(draft.q), Script(1))
    with pytest.raises(DraftwoodError, match="no token can follow node 1"):
        forced(kind, Mode.BATCHED).verify([case])


@pytest.mark.parametrize("kind", [Traversal, Rejection, Block])
def test_batched_mode_waits_once(kind: type[Verifier], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a level where p may have no answer."""
    waits = []

    def counted(submitted: Any) -> Any:
        waits.append(len(submitted))
        return read(submitted)

    monkeypatch.setattr(judged_tree, "read", counted)
    verifier = forced(kind, Mode.BATCHED)
    drafts = [d for d, _ in some_drafts(verifier) if SAMPLED & set(d.tree.draws.tolist())]
    law = law_of(1, VOCAB, zeros=0.0)
    verifier.verify([case_of(draft, law, Script()) for draft in drafts])
    assert waits == [max(draft.tree.depth for draft in drafts)]
    waits.clear()
    for draft in drafts:
        p = Forbidding(rows_along(draft.tree, law), draft.tree)
        verifier.verify([Verification(draft.tree, p, CannedQ(draft.q), Script())])
    assert set(waits) == {1}
    assert len(drafts) < len(waits) <= sum(draft.tree.depth for draft in drafts)


@pytest.mark.parametrize("kind", [Traversal, Rejection, Block])
def test_what_begins_early_ends_with_the_same_verdicts(kind: type[SampledVerifier]) -> None:
    verifier = kind()
    drafts = [(d, law) for d, law in some_drafts(verifier) if verifier.early(d.tree)]
    assert len(drafts) > 5
    for accepted in (-1, 1, 2):
        early, late = (
            [case_of(draft, law, Script(accepted)) for draft, law in drafts] for _ in range(2)
        )
        begun = verifier.begin(early)
        numbers = [tensor.numpy() for tensor in begun.tensors]
        assert begun.verdicts(early, numbers) == verifier.verify(late)


@pytest.mark.parametrize("kind", [Traversal, Rejection, Block])
def test_only_trees_to_test_begin_early(kind: type[SampledVerifier]) -> None:
    plain = tree_of([3, 4], [-1, 0])
    assert not kind().early(plain)
    draft = drawn(chain(1), Given(0), always(1.0))
    assert kind().early(draft.tree)
    one_by_one = forced(kind, Mode.SEQUENTIAL)
    assert isinstance(one_by_one, EarlyVerifier)
    assert not one_by_one.early(draft.tree)


def test_sequential_mode_tests_only_visited_nodes() -> None:
    draft, law = example(), always(0.3, 0.4, 0.3)
    for accepted, expected in ((3, [ROOT, 1]), (1, [ROOT, 1]), (5, [ROOT, 1, 2])):
        p = CannedP(rows_along(draft.tree, law), draft.tree)
        q = CannedQ(draft.q)
        [verdict] = forced(Traversal, Mode.SEQUENTIAL).verify(
            [Verification(draft.tree, p, q, Script(accepted))]
        )
        assert verdict.path == draft.tree.path(accepted)
        assert p.asked == [(node,) for node in expected]
        assert [draft.tree.parents[node] for node in q.asked] == expected


@pytest.mark.parametrize("kind", [Traversal, Rejection, Block])
def test_both_modes_agree(kind: type[Verifier]) -> None:
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        for draft, law in some_drafts(forced(kind, Mode.BATCHED)):
            for accepted in (-1, 1, 2, 5):
                found = {mode: Script(accepted) for mode in Mode}
                one, other = (
                    forced(kind, mode).verify([case_of(draft, law, found[mode], dtype)])
                    for mode in Mode
                )
                assert one == other
                batched, sequential = found[Mode.BATCHED], found[Mode.SEQUENTIAL]
                assert list(sequential.probabilities) == list(batched.probabilities)
                assert sequential.probabilities == pytest.approx(
                    batched.probabilities, rel=most, abs=most
                )
                one_bonus, other_bonus = (
                    script.weights / script.weights.sum() for script in (sequential, batched)
                )
                torch.testing.assert_close(one_bonus, other_bonus, rtol=most, atol=most)


class _ReachedError(Exception):
    pass


def test_the_mode_depends_on_the_device_of_p(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Mode] = []

    def noted(mode: Mode) -> Callable[..., NoReturn]:
        def call(*given: object) -> NoReturn:
            taken.append(mode)
            raise _ReachedError

        return call

    monkeypatch.setattr(judged_tree, "submit", noted(Mode.BATCHED))
    monkeypatch.setattr(judged_tree, "Sequential", noted(Mode.SEQUENTIAL))
    draft = drawn(chain(1), Given(0), always(1.0))

    class Elsewhere(CannedP):
        def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
            return super().probabilities(nodes).to("meta")

    for p in (CannedP, Elsewhere):
        case = Verification(
            draft.tree, p([always(1.0)(())] * 2, draft.tree), CannedQ(draft.q), Script()
        )
        for chosen in (None, *Mode):
            with pytest.raises(_ReachedError):
                judged_trees([case], chosen, carried=True)
    forced_ones = list(Mode)
    assert taken == [Mode.SEQUENTIAL, *forced_ones, Mode.BATCHED, *forced_ones]


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_p_and_q_are_not_modified(verifier: Verifier) -> None:
    class Owned:
        everywhere: ClassVar = True

        def __init__(self, rows: torch.Tensor) -> None:
            self.rows, self.before = rows, rows.clone()

        def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
            return self.rows[: len(nodes)]

        def draw(self, node: int, noise: object) -> int:
            return 0

    grow = binary(Draw.WITHOUT_REPLACEMENT) if verifier.branching else chain(2)
    draft = drawn(grow, Dice(1), law_of(1))
    p, q = (Owned(torch.tensor([[0.2, 0.3, 0.5]] * 4)) for _ in range(2))
    verifier.verify([Verification(draft.tree, p, q, Script())])
    assert torch.equal(p.rows, p.before)
    assert torch.equal(q.rows, q.before)


# --- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_draft_from_p_itself_is_accepted(verifier: Verifier, dtype: torch.dtype) -> None:
    law = law_of(5, vocab=50)
    draft = drawn(chain(4), Dice(1), law)
    (outcomes,) = every_verdict(verifier, [draft], law, dtype)
    assert {verdict.path for verdict, _ in outcomes} == {(1, 2, 3, 4)}


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_without_a_residual_the_bonus_is_drawn_from_p(verifier: Verifier) -> None:
    law = always(0.25, 0.75)
    draft, script = drawn(chain(1), Given(0), law), Script()
    # Noise that rejects a certain node; rounding may come to the same.
    assert verifier.verify([case_of(draft, law, script)]) == [Verdict((), 1)]
    assert script.weights.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("verifier", OF_TREES)
def test_the_rest_of_a_peaked_q_is_summed(verifier: Verifier) -> None:
    tiny = np.array([3e-8, 1e-8, 2e-8], dtype=np.float32)
    q = np.array([1 - 6e-8, *tiny], dtype=np.float32)
    p = np.array([0.2, 0.3, 0.4, 0.1], dtype=np.float32)

    def grow(drafting: Drafting) -> None:
        drafting.sample(ROOT, 2)

    draft = drawn(grow, Given(0, 1), lambda prefix: q.astype(np.float64))
    script = Script()
    case = Verification(
        draft.tree,
        CannedP([p.astype(np.float64)] * 3, draft.tree, torch.float32),
        CannedQ(dict.fromkeys((1, 2), q.astype(np.float64)), torch.float32),
        script,
    )
    verifier.verify([case])
    # After the first child R = (0, .3, .4, .1) and W = .8; the second came from (0, 3, 1, 2) / 6,
    # where one minus the drawn token, 5.96e-8, would have the sum wrong.
    assert 1 - float(q[0]) != pytest.approx(float(tiny.sum()), rel=1e-3)
    assert script.probabilities[2] == pytest.approx(0.3 / (0.8 * 0.5), rel=1e-6)
    left = np.array([0.4 - 0.8 / 6, 0.1 - 0.8 / 3])
    assert script.weights.tolist() == pytest.approx([0, 0, left[0], 0], abs=1e-7)


def misdrawn(*tokens: int, draw: Draw = Draw.WITHOUT_REPLACEMENT) -> Grow:
    """Children said to be drawn, of probability 0 or from a row with nothing left."""

    def grow(drafting: Drafting) -> None:
        row = drafting.q(ROOT)
        for token in tokens:
            drafting.add(ROOT, token, row, row, draw)

    return grow


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("verifier", OF_TREES)
def test_zero_probability_children_do_not_change_the_residual(
    verifier: Verifier, dtype: torch.dtype
) -> None:
    q, law = always(0.0, 0.6, 0.4), always(0.3, 0.1, 0.6)
    draft, script = drawn(misdrawn(1, 2, 0), Dice(0), q), Script()
    verifier.verify([case_of(draft, law, script, dtype)])
    # R = (.3, 0, .2), W = .5; then R = (.3, 0, 0) and the row is empty.
    assert list(script.probabilities.values()) == pytest.approx([1 / 6, 0.4, 0.0])
    assert script.weights.tolist() == pytest.approx([0.3, 0, 0], abs=1e-7)
    draft, script = drawn(misdrawn(0, 1, draw=Draw.IID), Dice(0), q), Script()
    verifier.verify([case_of(draft, law, script, dtype)])
    assert list(script.probabilities.values()) == pytest.approx([0.0, 0.0])
    assert script.weights.tolist() == pytest.approx([0.3, 0, 0], abs=1e-7)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_zero_probability_child_is_not_accepted(verifier: Verifier) -> None:
    draft, script = drawn(misdrawn(0), Dice(0), always(0.0, 0.6, 0.4)), Script()
    verifier.verify([case_of(draft, always(0.3, 0.1, 0.6), script)])
    assert script.probabilities == {1: 0.0}
    assert script.weights.tolist() == pytest.approx([0.3, 0, 0.2])


def extreme(seed: int) -> Law:
    """Rows with one token, with probabilities near the smallest numbers, and with zeros."""

    def after(prefix: tuple[int, ...]) -> Row:
        rng = np.random.default_rng([seed, *prefix])
        row = 10.0 ** rng.choice([0, -3, -8, -30, -44, -400], size=VOCAB)
        row[rng.integers(VOCAB)] = 1.0
        return np.asarray(row / row.sum())

    return after


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_results_are_never_nan(verifier: Verifier, dtype: torch.dtype) -> None:
    for seed in range(30):
        grow = ragged(3, 3) if verifier.branching else chain(5)
        draft = drawn(grow, Dice(seed), extreme(seed))
        script = Script()
        (verdict,) = verifier.verify([case_of(draft, extreme(seed + 1000), script, dtype)])
        assert all(0 <= probability <= 1 for probability in script.probabilities.values())
        assert torch.isfinite(script.weights).all()
        assert script.weights.sum() > 0
        assert extreme(seed + 1000)(())[verdict.bonus] > 0
