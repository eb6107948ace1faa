"""Path trie, ranked rows, forward counts and expected speeds."""

from dataclasses import replace

import numpy as np
import pytest

from draftwood.costs.curve import Curve, StepCosts
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.decoding import StepWork
from draftwood.lab.replay.figures import BatchLoad, speed
from draftwood.lab.replay.forward_log import ForwardLog
from draftwood.lab.replay.pricing import of_sequence
from draftwood.lab.replay.rows import UNKNOWN, PathTrie, RankedRows
from draftwood.tree import ROOT, TreeBuilder


def row(*tokens: int) -> np.ndarray:
    return np.array([tokens], dtype=np.int64)


def values(*found: float) -> np.ndarray:
    return np.array([found], dtype=np.float32)


def test_a_trie_finds_the_text_and_inserted_paths() -> None:
    paths = PathTrie([5, 6, 7])
    # Root at position 1 (token 6): 7 is the text; 9 leaves it, and so does 8 below 7.
    tokens, parents = [6, 7, 9, 8, 4], [-1, 0, 0, 1, 2]
    found = [1]
    paths.extend(found, tokens, parents)
    assert found == [1, 2, UNKNOWN, UNKNOWN, UNKNOWN]
    assert paths.insert(1, tokens, parents) == [1, 2, 3, 4, 5]
    assert (paths.parents, paths.tokens) == ([1, 2, 3], [9, 8, 4])
    found = [1]
    paths.extend(found, tokens[:3], parents)
    paths.extend(found, tokens, parents)
    assert found == [1, 2, 3, 4, 5]
    again = PathTrie([5, 6, 7], paths.parents, paths.tokens)
    assert again.insert(1, tokens, parents) == [1, 2, 3, 4, 5]
    assert len(again) == 6


def test_invalid_paths_are_refused() -> None:
    with pytest.raises(DraftwoodError, match="path 3 follows path 3"):
        PathTrie([5, 6, 7], [3], [1])
    with pytest.raises(DraftwoodError, match="two paths of a recording are the same"):
        PathTrie([5, 6, 7], [0], [6]).extend([0], [5, 1], [-1, 0])


def test_a_row_is_replaced_only_by_a_wider_one() -> None:
    table = RankedRows(2)
    table.put([7], 2, row(1, 2), values(0.5, 0.25))
    table.put([7], 2, row(3, 4), values(0.1, 0.1))
    table.put([9], 2, row(5, -1), values(1.0, -np.inf))
    tokens, found = table.take([table.index[9], table.index[7]], 2)
    assert tokens.tolist() == [[5, -1], [1, 2]]
    assert found[1].tolist() == [0.5, 0.25]
    table.put([7], 3, np.array([[1, 2, 3]]), values(0.5, 0.25, 0.125))
    assert table.asked == [3, 2]
    assert table.tokens.tolist() == [[1, 2, 3], [5, -1, -1]]
    assert table.values[1].tolist() == [1.0, -np.inf, -np.inf]
    assert table.take([0], 1)[0].dtype == np.int64


def test_a_growing_table_does_not_change_the_given_array() -> None:
    given = np.array([[1], [2]], dtype=np.int32)
    table = RankedRows(1, [0, 1], [1, 1], given, np.zeros((2, 1), dtype=np.float32))
    for key in range(2, 500):
        table.put([key], 1, row(key + 1), values(key / 2))
    assert table.tokens[:, 0].tolist() == list(range(1, 501))
    assert table.values[2:, 0].tolist() == [key / 2 for key in range(2, 500)]
    assert len(given) == 2


def growing() -> TreeBuilder:
    r"""A chain 0-1-2-3 with a child 4 of 1 and a child 5 of the root."""
    tree = TreeBuilder(0)
    tree.add_chain([1, 2, 3], "s")
    tree.add(1, 9, "s")
    tree.add(ROOT, 8, "s")
    return tree


def test_a_draft_model_scores_new_nodes_and_their_ancestors_in_one_forward() -> None:
    tree, log = growing(), ForwardLog()
    log.score([(0, tree, [2])])  # root, 1, 2
    log.score([(0, tree, [1, 2])])  # nothing new
    log.score([(0, tree, [3, 4, 5])])
    assert log.take() == (3, 3)
    assert log.forwards == 2
    log.next_step(0)
    log.score([(0, tree, [ROOT])])
    log.score([(0, growing(), [ROOT])])  # another tree starts from its root
    assert log.take() == (1, 1)
    assert log.forwards == 4


def test_the_requests_of_a_batch_share_a_forward() -> None:
    one, other, log = growing(), growing(), ForwardLog()
    log.score([(0, one, [2]), (1, other, [5])])
    log.next_step(1)
    log.score([(0, one, [2]), (1, other, [ROOT])])
    assert log.take() == (5, 1)
    heads = ForwardLog()
    heads.score_by_level([(0, one, [2]), (1, other, [5])])  # roots, then 1 and 5, then 2
    assert heads.take() == (2, 2, 1)
    assert heads.forwards == 3


def test_a_head_scores_one_level_per_forward() -> None:
    tree, log = growing(), ForwardLog()
    log.score_by_level([(0, tree, [2])])  # root, then 1, then 2
    assert log.take() == (1, 1, 1)
    # 3 and 5 have scored parents, whatever their depths are; so has 4.
    log.score_by_level([(0, tree, [3, 4, 5])])
    assert log.take() == (3,)
    log.score_by_level([(0, tree, [5])])
    assert log.take() == ()


# --- speeds ---------------------------------------------------------------------------------------

COSTS = StepCosts(
    target=Curve((1, 101), (1.0, 2.0), per_context=0.001),  # 0.01 a further token
    drafters={"d": Curve((1, 11), (0.1, 0.2))},
    fixed=0.5,
)


def step(nodes: int, committed: int, *widths: int) -> StepWork:
    return StepWork(nodes, committed, {"d": widths})


def test_speed_of_a_single_sequence() -> None:
    steps = [step(10, 3, 1, 11), step(0, 1)]
    # 1.1 + 0.1 + 0.2 + 0.5, then 1.0 + 0.5; plain decoding: 1.5 a token.
    found = speed(steps, COSTS, BatchLoad(1, 0))
    assert found.tokens_per_second == pytest.approx(4 / (1.9 + 1.5))
    assert found.speedup == pytest.approx(4 / 3.4 * 1.5)
    cached = speed(steps, COSTS, BatchLoad(1, 100))
    assert cached.tokens_per_second == pytest.approx(4 / 3.6)


def test_a_batch_shares_forwards() -> None:
    steps = [step(10, 3, 1, 10), step(0, 1)]
    # Both steps in each group: 12 tokens, levels of 1 and 10.
    seconds = 1.11 + 0.1 + 0.19 + 0.5
    found = speed(steps, COSTS, BatchLoad(2, 0))
    assert found.tokens_per_second == pytest.approx(4 / seconds)
    assert found.speedup == pytest.approx(4 / seconds * (1.01 + 0.5) / 2)
    # Every step counts equally in groups that do not divide them.
    steps = [step(5, n, 1) for n in (1, 2, 6)]
    per_step = (1.01 + 0.01 * 10 + 0.1 * 1.1 + 0.5) / 2  # 12 tokens and a level of 2, for two steps
    found = speed(steps, COSTS, BatchLoad(2, 0))
    assert found.tokens_per_second == pytest.approx(3 / per_step)


def test_a_batch_of_steps_that_are_alike_costs_what_it_was_planned_to() -> None:
    steps, load = [step(10, 3, 1, 10), step(0, 1)], BatchLoad(2, 50)
    planned = of_sequence(COSTS, load.batch, load.context)
    seconds = planned.step(11, 0, 1, {"d": [1, 10]}) + planned.step(1)
    found = speed(steps, COSTS, load, alike=True)
    assert found.tokens_per_second == pytest.approx(2 * 4 / seconds)
    # Of random steps both pay for the levels, as one forward serves the batch.
    assert speed(steps, COSTS, load).tokens_per_second < found.tokens_per_second


@pytest.mark.parametrize(
    ("batch", "context"), [(1, 0), (3, 0), (3, 50), (5, 20), (16, 7), (24, 9), (200, 1)]
)
def test_costs_of_one_sequence_are_those_of_its_batch(batch: int, context: int) -> None:
    target = Curve((1, 8, 13, 24, 40, 101), (1.0, 1.1, 1.1, 1.3, 3.0, 4.0), 1e-3, 1e-2, 0.1)
    whole = replace(COSTS, target=target, node=0.02, sequence=0.03)
    one = of_sequence(whole, batch, context)
    for nodes in (1, 2, 3, 4, 7, 8, 9, 20, 33, 64):
        wanted = whole.step(batch * nodes, batch * context, batch, {"d": [2 * batch]})
        found = one.step(nodes, 0, 1, {"d": [2]})
        assert found == pytest.approx(wanted, rel=1e-9), nodes


def test_unknown_costs_of_a_drafter_are_refused() -> None:
    with pytest.raises(DraftwoodError, match="drafter 'e' are not known"):
        speed([StepWork(1, 1, {"e": (1,)})], COSTS, BatchLoad(1, 0))
