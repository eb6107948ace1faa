"""A node's distribution under a grammar is that of plain decoding behind its path."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.grammars.constraint import GrammarConstraint
from draftwood.sampling.ahead import DrawsAhead
from draftwood.sampling.distributions import TreeDistributions, TreeProposals
from draftwood.sampling.history import History
from draftwood.sampling.sampler import Sampler, SamplingParams
from draftwood.sampling.tree_mask import TreeMask
from draftwood.tree import TokenTree, tree_of
from tests.factories.toy_constraint import ToyMatcher, toy_constraint
from tests.sampling.test_ahead import SETTINGS, TREE, Given, Running, V

END = 39


def rule(seen: tuple[int, ...]) -> set[int]:
    turn = sum(i * token for i, token in enumerate(seen, 1)) % 4
    return {t for t in range(V - 1) if (t + turn) % 4 > 1 or t < 4} | {-1}


LEGAL = tree_of([7, 1, 2, 1, 3, 2], [-1, 0, 0, 1, 2, 4])


def mask(tree: TokenTree) -> TreeMask:
    return TreeMask(toy_constraint(rule, V, {END}), tree)


def masked(running: Running) -> TreeDistributions:
    plain = running.p()
    plain._mask = mask(running.tree)
    return plain


def alone(running: Running, node: int) -> TreeDistributions:
    """The distributions of a tree of one node, behind the committed path."""
    path = running.tree.path_tokens(node)
    constraint = toy_constraint(rule, V, {END})
    constraint.advance(path)
    behind = Running(running.sampler, tree_of([int(running.tree.tokens[node])], [-1]))
    behind.logits = running.logits[node : node + 1]
    behind.history = History([4, 4, 5, 7, *path])
    found = behind.p()
    found._mask = TreeMask(constraint, behind.tree)
    return found


@pytest.mark.parametrize("setting", [{}, *SETTINGS])
def test_each_node_is_masked_as_plain_decoding_of_its_path(setting: dict[str, float]) -> None:
    running = Running(Sampler(SamplingParams(**setting), 2), LEGAL)  # type: ignore[arg-type]
    nodes = range(len(LEGAL))
    together = masked(running).probabilities(nodes)
    for node in reversed(nodes):
        expected = alone(running, node).probabilities([0])
        torch.testing.assert_close(masked(running).probabilities([node]), expected)
        torch.testing.assert_close(together[node : node + 1], expected)
        legal = rule(LEGAL.path_tokens(node)) | {END}
        assert not expected[0, [t for t in range(V) if t not in legal]].any()
        token = masked(running).draw(node, running.noise)
        assert expected[0, token] > 0
    free = running.p().probabilities(nodes)
    assert not torch.equal(free, together)


@pytest.mark.parametrize("setting", [{}, *SETTINGS])
def test_draws_for_all_nodes_at_once_are_masked(setting: dict[str, float]) -> None:
    running = Running(Sampler(SamplingParams(**setting), 2), LEGAL)  # type: ignore[arg-type]
    draws = DrawsAhead()
    draws.add(LEGAL, running.sampler, running.history, running.noise, mask(LEGAL))
    [found] = draws.draw(Given([running.logits], torch.from_numpy(draws.numbers)))
    assert found is not None
    one_by_one = [masked(running).draw(node, running.noise) for node in range(len(LEGAL))]
    assert found.tolist() == one_by_one
    drawn = running.p(found)
    drawn._mask = mask(LEGAL)
    assert [drawn.draw(node, running.noise) for node in range(len(LEGAL))] == one_by_one


def test_nodes_that_cannot_be_reached_have_all_tokens() -> None:
    running = Running(Sampler(SamplingParams(temperature=1.0), 2), TREE)
    assert 9 not in rule(TREE.path_tokens(4)), "the last node is illegal"
    p = masked(running)
    assert p.probabilities([5])[0].gt(0).sum() == V
    assert p.everywhere


def complaint(running: Running, words: str) -> None:
    matcher = ToyMatcher(lambda seen: set(), V)
    matcher.error = words
    constraint = toy_constraint(rule, V)
    constraint._matcher = matcher
    p = running.p()
    p._mask = TreeMask(constraint, running.tree)
    reason = words or "the grammar allows none"
    with pytest.raises(DraftwoodError, match=rf"no token can follow at position 4: {reason}$"):
        p.draw(0, running.noise)
    if running.sampler.do_sample:
        assert p.probabilities([0]).isnan().all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("words", ["", "the step limit was reached"])
def test_a_grammar_that_dies_says_why(temperature: float, words: str) -> None:
    complaint(Running(Sampler(SamplingParams(temperature=temperature), 2)), words)


class FailsAtOne(ToyMatcher):
    """Exceeds a limit after a token 1, and forgets that where it is moved next."""

    def accept(self, tokens: Sequence[int]) -> int:
        self.error = ""
        return super().accept(tokens)

    def bits(self) -> NDArray[np.int64]:
        self.error = "too complex" if self.seen == [1] else ""
        return super().bits()


def test_a_node_where_a_grammar_dies_says_why_whatever_was_looked_at_since() -> None:
    tree = tree_of([7, 1, 2], [-1, 0, 0])
    of = TreeMask(GrammarConstraint(FailsAtOne(rule, V), V, {END}), tree)
    legal = of.masked(torch.ones(3, V), range(3), 0.0).any(dim=-1)
    assert legal.tolist() == [True, False, True]
    assert [of.complaint(node) for node in range(3)] == ["", "too complex", ""]


def test_logits_that_are_no_numbers_are_still_named() -> None:
    running = Running(Sampler(SamplingParams(temperature=1.0), 2), LEGAL)
    running.logits[0] = math.nan
    with pytest.raises(DraftwoodError, match="the model's logits are not numbers at position 4"):
        masked(running).draw(0, running.noise)


class Proposing:
    """A drafter that drew from these rows."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        return self.rows[list(q_rows)]


def test_q_is_over_the_legal_tokens() -> None:
    tree = tree_of([7, 2, 3], [-1, 0, 1], "draft")
    object.__setattr__(tree, "q_rows", np.array([-1, 0, 1]))
    rows = torch.rand(2, V).softmax(dim=-1)
    drafters = {"draft": Proposing(rows)}
    q = TreeProposals(drafters, 0, tree, mask(tree)).probabilities([1, 2])  # type: ignore[arg-type]
    for row, path in enumerate([(), (2,)]):
        legal = sorted(rule(path) - {-1} | {END})
        expected = torch.zeros(V)
        expected[legal] = rows[row, legal] / rows[row, legal].sum()
        torch.testing.assert_close(q[row], expected)
