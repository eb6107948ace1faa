"""Sampled answers: the law of what is drawn, by chi-square, and the q it is said to come from."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from draftwood.drafters._rollout.draws import Draws
from draftwood.drafters._rollout.gumbel import (
    WHOLE,
    GumbelTopK,
    gumbel_top_k,
    gumbel_top_k_blocks,
    gumbel_top_k_whole,
)
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.errors import DraftwoodError
from draftwood.protocols import Candidates, Expand, TargetInfo
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw, TreeBuilder

LOGITS = [1.0, 0.2, -0.7, 1.4, 0.0]
SAMPLED = (Draw.WITHOUT_REPLACEMENT, Draw.IID)
DRAWS = 12_000
VARIANTS: dict[str, GumbelTopK] = {
    "whole": gumbel_top_k_whole,
    "blocks": partial(gumbel_top_k_blocks, width=2),
}
each_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


def outputs(to_target: Sequence[int] = range(5), vocab: int = 5) -> VocabularyMap:
    target = TargetInfo(vocab, 64, 1, 1, torch.device("cpu"), torch.float32)
    return VocabularyMap(np.array(to_target, dtype=np.int64), target)


def query(draw: Draw, nodes: int, k: int, seed: int = 0, **changes: Any) -> Expand:
    found = Expand("draft", TreeBuilder(0), range(nodes), k, draw, noise=RequestNoise(seed, 5))
    return dataclasses.replace(found, **changes)


def rows(logits: Sequence[float], n: int) -> torch.Tensor:
    return torch.tensor(logits).repeat(n, 1)


def softmax(logits: Sequence[float], temperature: float = 1.0) -> NDArray[np.float64]:
    weights = np.exp(np.array(logits) / temperature)
    found: NDArray[np.float64] = weights / weights.sum()
    return found


def ordered(q: NDArray[np.float64], draw: Draw) -> NDArray[np.float64]:
    """``[V, V]``: the probability of each first and second draw."""
    if draw is Draw.IID:
        return np.outer(q, q)
    found: NDArray[np.float64] = np.outer(q / (1 - q), q)
    np.fill_diagonal(found, 0)
    return found


def p_value(pairs: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """p-value of a chi-square test of pairs ``[n, 2]``; 0 if an impossible pair occurred."""
    counts = np.zeros(expected.shape)
    np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1)
    if counts[expected == 0].any():
        return 0.0
    likely = expected > 0
    found = stats.chisquare(counts[likely], expected[likely] * len(pairs)).pvalue
    return float(found)


def pairs(found: Candidates) -> NDArray[np.int64]:
    assert (found.tokens >= 0).all()
    return found.tokens


@each_variant
@pytest.mark.parametrize("draw", SAMPLED)
def test_pairs_are_drawn_in_order_as_q_says(draw: Draw, variant: GumbelTopK) -> None:
    # Nodes of one step, and one node at many positions.
    found = [Draws(outputs(), variant).draw(query(draw, DRAWS, 2), rows(LOGITS, DRAWS)).tokens]
    for position in range(1500):
        asked = query(draw, 1, 2, noise=RequestNoise(7, position))
        found.append(Draws(outputs(), variant).draw(asked, rows(LOGITS, 1)).tokens)
    q = softmax(LOGITS)
    for part in (found[0], np.concatenate(found[1:])):
        assert p_value(part, ordered(q, draw)) > 1e-3
        # The test can tell: another kind, another order, another q.
        [other] = set(SAMPLED) - {draw}
        assert p_value(part, ordered(q, other)) < 1e-6
        assert p_value(part, ordered(softmax(LOGITS, 1.3), draw)) < 1e-3
    if draw is Draw.WITHOUT_REPLACEMENT:
        assert p_value(found[0][:, ::-1], ordered(q, draw)) < 1e-6


@each_variant
@pytest.mark.parametrize("draw", SAMPLED)
@pytest.mark.parametrize(
    ("ids", "exclude", "temperature"),
    [
        (range(5), {3, 1}, 0.5),
        (range(5), {3, 1}, 2.0),
        # Outputs 0 to 4 are tokens 6, none, 1, 2 and none; 5 and 7 are not drafted anyway.
        ([6, -1, 1, 2, -1], {5, 7}, 1.0),
    ],
)
def test_temperature_exclusion_and_vocabulary_shape_q(
    ids: Sequence[int], exclude: set[int], temperature: float, draw: Draw, variant: GumbelTopK
) -> None:
    asked = query(draw, DRAWS, 2, temperature=temperature, exclude=[frozenset(exclude)] * DRAWS)
    draws = Draws(outputs(ids, 8), variant)
    found = draws.draw(asked, rows(LOGITS, DRAWS))
    q = np.zeros(8)
    for token, share in zip(ids, softmax(LOGITS, temperature), strict=True):
        if token >= 0 and token not in exclude:
            q[token] = share
    q /= q.sum()
    assert p_value(pairs(found), ordered(q, draw)) > 1e-3
    assert found.q_rows is not None
    kept = draws.proposals(found.q_rows[:1].tolist())
    assert kept.dtype == torch.float32
    assert kept[0].tolist() == pytest.approx(q, abs=1e-6)
    np.testing.assert_allclose(np.exp(found.logq), q[found.tokens], rtol=1e-5)


def test_nodes_exclude_tokens_of_their_own() -> None:
    draws = Draws(outputs())
    excludes = [frozenset({0}), frozenset[int](), frozenset({4, 2})]
    found = draws.draw(query(Draw.IID, 3, 1, exclude=excludes), rows(LOGITS, 3))
    assert found.q_rows is not None
    q = draws.proposals(found.q_rows.tolist())
    assert [(row == 0).nonzero()[:, 0].tolist() for row in q] == [[0], [], [2, 4]]
    assert q.sum(1).tolist() == pytest.approx([1, 1, 1])


@each_variant
@pytest.mark.parametrize("draw", SAMPLED)
def test_nodes_draw_independently(draw: Draw, variant: GumbelTopK) -> None:
    drawn = Draws(outputs(), variant).draw(query(draw, DRAWS, 2), rows(LOGITS, DRAWS)).tokens
    q = softmax(LOGITS)
    for place, other in product((0, 1), repeat=2):
        neighbours = np.stack([drawn[::2, place], drawn[1::2, other]], axis=1)
        law = [q, ordered(q, draw).sum(axis=0)]
        assert p_value(neighbours, np.outer(law[place], law[other])) > 1e-3


@pytest.mark.parametrize("draw", SAMPLED)
def test_a_level_draws_like_each_node_alone(draw: Draw) -> None:
    rng = np.random.default_rng(1)
    q = rng.dirichlet(np.full(40, 0.3), size=30).astype(np.float32)
    noise = RequestNoise(3, 11)
    found, probs = gumbel_top_k(
        torch.from_numpy(q), 4, draw, [noise.draft(node) for node in range(30)]
    )
    for node in range(30):
        generator = noise.draft(node)
        times: list[NDArray[np.float64]] = []
        for _ in range(4 if draw is Draw.IID else 1):
            with np.errstate(divide="ignore"):
                times.append(generator.standard_exponential(40) / q[node])
        ringing = [int(np.argmin(each)) for each in times]
        if draw is Draw.WITHOUT_REPLACEMENT:
            ringing = np.argsort(times[0])[:4].tolist()
        assert found[node].tolist() == ringing
        assert probs[node].tolist() == q[node, ringing].tolist()


# --- blocks ---------------------------------------------------------------------------------------


def all_clocks(
    q: NDArray[np.float32], width: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Times of all tokens, block by block in the order of the blocks' times."""
    blocks = np.pad(q, (0, -len(q) % width)).reshape(-1, width).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        starts = generator.standard_exponential(len(blocks)) / blocks.sum(axis=1)
        times = np.full(blocks.shape, np.inf)
        for block in starts.argsort():
            if starts[block] < np.inf:
                rings = generator.standard_exponential(width) / blocks[block]
                times[block] = rings - rings.min() + starts[block]
    return times.ravel()[: len(q)]


def test_unopened_blocks_hold_no_drawn_token() -> None:
    rng = np.random.default_rng(2)
    q = rng.dirichlet(np.full(40, 0.3), size=50).astype(np.float32)
    q[0, 3:9] = 0
    noise = RequestNoise(3, 11)
    for k in (1, 3, 8, 20):
        generators = [noise.draft(node) for node in range(50)]
        found, probs = gumbel_top_k_blocks(torch.from_numpy(q), k, SAMPLED[0], generators, 3)
        for node in range(50):
            expected = all_clocks(q[node], 3, noise.draft(node)).argsort()[:k].tolist()
            assert found[node].tolist() == expected
            assert probs[node].tolist() == q[node, expected].tolist()


def test_block_times_have_the_law_of_independent_times() -> None:
    q = np.array([0.5, 0.1, 0.02, 0.3, 0.05, 0.03], dtype=np.float32)
    noise = RequestNoise(4)
    times = np.stack([all_clocks(q, 3, noise.draft(i)) for i in range(DRAWS)]) * q
    for token in range(len(q)):
        assert stats.kstest(times[:, token], "expon").pvalue > 1e-3
    for one, other in combinations(range(len(q)), 2):
        both = [np.digitize(times[:, token], [0.2, 0.7, 1.5]) for token in (one, other)]
        table = stats.contingency.crosstab(*both).count
        assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("width", [1, 4])
def test_the_order_of_three_is_drawn_as_q_says(width: int) -> None:
    q = np.array([0.4, 0.05, 0.0, 0.3, 0.05, 0.2])
    noise = RequestNoise(5)
    rows = torch.tensor(q, dtype=torch.float32).expand(DRAWS, -1)
    generators = [noise.draft(i) for i in range(len(rows))]
    found, _ = gumbel_top_k_blocks(rows, 3, Draw.WITHOUT_REPLACEMENT, generators, width)
    possible = list(permutations([0, 1, 3, 4, 5], 3))
    law = [q[a] * q[b] / (1 - q[a]) * q[c] / (1 - q[a] - q[b]) * len(rows) for a, b, c in possible]
    counts = Counter(map(tuple, found.tolist()))
    assert set(counts) <= set(possible)
    assert stats.chisquare([counts[order] for order in possible], law).pvalue > 1e-3
    # Whichever comes first, the others are in the wrong places for another order.
    turned = [counts[b, a, c] for a, b, c in possible]
    assert stats.chisquare(turned, law).pvalue < 1e-6


def test_large_vocabularies_are_drawn_in_blocks_by_the_same_law() -> None:
    rng = np.random.default_rng(6)
    noise = RequestNoise(6)
    for vocab, variant in (
        (WHOLE, gumbel_top_k_whole),
        (WHOLE + 1, gumbel_top_k_blocks),
        (2 * WHOLE + 70, gumbel_top_k_blocks),
    ):
        q = rng.dirichlet(np.full(vocab, 0.01)).astype(np.float32)
        rows = torch.from_numpy(q).expand(3000, -1)
        for draw in SAMPLED:
            once, again = (
                run(rows[:3], 2, draw, [noise.draft(i) for i in range(3)])[0]
                for run in (gumbel_top_k, variant)
            )
            assert once.tolist() == again.tolist()
        found, _ = gumbel_top_k(
            rows, 2, Draw.WITHOUT_REPLACEMENT, [noise.draft(i) for i in range(3000)]
        )
        share = q.astype(np.float64) / q.sum(dtype=np.float64)
        odds = share / (1 - share)
        # Tokens in twenty groups; the second draw's law is summed over the first.
        group = rng.integers(20, size=vocab)
        for place, law in enumerate((share, share * (odds.sum() - odds))):
            counts = np.bincount(group[found[:, place]], minlength=20)
            wanted = np.bincount(group, weights=law, minlength=20) * len(found)
            assert stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue > 1e-3


# --- what a node draws ----------------------------------------------------------------------------


@each_variant
@pytest.mark.parametrize("draw", SAMPLED)
def test_a_second_query_repeats_and_continues_a_nodes_draws(
    draw: Draw, variant: GumbelTopK
) -> None:
    draws, asked = Draws(outputs(), variant), query(draw, 6, 2)
    first = draws.draw(asked, rows(LOGITS, 6))
    further = dataclasses.replace(asked, k=4, nodes=[4, 0, 5])
    again = draws.draw(further, rows(LOGITS, 3))
    assert again.tokens[:, :2].tolist() == first.tokens[[4, 0, 5]].tolist()
    assert first.q_rows is not None
    assert again.q_rows is not None
    # Siblings of one drawing have one handle: the verifier removes each from the rest of its q.
    assert again.q_rows.tolist() == first.q_rows[[4, 0, 5]].tolist() == [4, 0, 5]
    assert draws.draw(query(draw, 6, 2, seed=1), rows(LOGITS, 6)).tokens.tolist() != (
        first.tokens.tolist()
    )


def test_a_second_query_with_other_exclusions_is_refused() -> None:
    draws = Draws(outputs())
    asked = query(Draw.WITHOUT_REPLACEMENT, 1, 2)
    first = draws.draw(asked, rows(LOGITS, 1)).tokens
    other = dataclasses.replace(asked, exclude=[frozenset(first[0, :1].tolist())])
    hotter = dataclasses.replace(asked, temperature=2.0)
    for wrong in (other, hotter, dataclasses.replace(asked, draw=Draw.IID)):
        with pytest.raises(DraftwoodError, match="children of node 0 were drawn before in another"):
            draws.draw(wrong, rows(LOGITS, 1))
    assert draws.draw(asked, rows(LOGITS, 1)).tokens.tolist() == first.tolist()
    draws.draw(dataclasses.replace(other, nodes=[3]), rows(LOGITS, 1))
    # Another tree, another step.
    draws.draw(dataclasses.replace(other, tree=TreeBuilder(0)), rows(LOGITS, 1))
    draws.clear()
    draws.draw(other, rows(LOGITS, 1))


@each_variant
def test_zero_probability_tokens_are_never_drawn(variant: GumbelTopK) -> None:
    logits = [-300.0, 0.5, -torch.inf, 0.5, -300.0]
    draws = Draws(outputs(), variant)
    found = draws.draw(query(Draw.WITHOUT_REPLACEMENT, 200, 4), rows(logits, 200))
    assert {tuple(row) for row in found.tokens.tolist()} == {(1, 3, -1, -1), (3, 1, -1, -1)}
    assert np.exp(found.logq).tolist() == [[0.5, 0.5, 0, 0]] * 200
    found = draws.draw(query(Draw.IID, 200, 4), rows(logits, 200))
    assert set(found.tokens.flat) == {1, 3}
    assert any(len(set(row)) < 4 for row in found.tokens.tolist())


@each_variant
@pytest.mark.parametrize("draw", SAMPLED)
def test_without_probability_nothing_is_drawn(draw: Draw, variant: GumbelTopK) -> None:
    excludes = [frozenset[int](), frozenset(range(5)), frozenset({0})]
    draws = Draws(outputs(), variant)
    found = draws.draw(query(draw, 3, 2, exclude=excludes), rows(LOGITS, 3))
    assert found.tokens[1].tolist() == [-1, -1]
    assert found.logq[1].tolist() == [-np.inf, -np.inf]
    assert found.q_rows is not None
    assert found.q_rows.tolist() == [0, -1, 1]
    assert bool((draws.proposals([0, 1]).sum(1) - 1 < 1e-6).all())
    found = draws.draw(query(draw, 3, 0), rows(LOGITS, 3))
    assert found.tokens.shape == (3, 0)


@each_variant
def test_tokens_of_tiny_probability_are_drawn_in_proportion(variant: GumbelTopK) -> None:
    # As at a low temperature: without the likeliest, three to one, at the end of float32's range.
    least = np.finfo(np.float32).smallest_subnormal
    q = torch.from_numpy(np.array([1, 3 * least, least, 0], dtype=np.float32)).repeat(4000, 1)
    noise = RequestNoise(2)
    found, _ = variant(q, 4, Draw.WITHOUT_REPLACEMENT, [noise.draft(i) for i in range(4000)])
    assert set(found[:, 0]) == {0}
    assert set(found[:, 3]) == {-1}
    second = np.bincount(found[:, 1], minlength=3)[1:]
    assert stats.chisquare(second, [3000, 1000]).pvalue > 1e-3


class _Stopped(np.random.Generator):
    """A generator of zeros, which occur once in about 2**53 numbers."""

    def standard_exponential(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        assert out.dtype == np.float64, "float32 exponentials are zero once in a few million tokens"
        out[:] = 0
        return out


@each_variant
@pytest.mark.parametrize("draw", SAMPLED)
def test_a_zero_variate_is_replaced_by_the_least_positive_number(
    draw: Draw, variant: GumbelTopK
) -> None:
    q = torch.tensor([[0, 0.2, 0.8, 0]])
    found, _ = variant(q, 3, draw, [_Stopped(np.random.Philox(1))])
    assert found.tolist() == [[2, 1, -1] if draw is Draw.WITHOUT_REPLACEMENT else [2, 2, 2]]


def test_proposals_are_the_drawn_rows_until_the_step_ends() -> None:
    draws = Draws(outputs())
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((4, 5), generator=generator)
    found = draws.draw(query(Draw.IID, 4, 3, temperature=0.7), logits.clone())
    assert found.q_rows is not None
    handles = found.q_rows.tolist()
    q = draws.proposals(handles[::-1]).flip(0)
    torch.testing.assert_close(q, (logits / 0.7).softmax(-1))
    # Bit by bit: the log of the very number.
    assert found.logq.tolist() == np.log(np.take_along_axis(q.numpy(), found.tokens, 1)).tolist()
    assert draws.proposals([]).shape == (0, 5)
    assert torch.equal(torch.cat([draws.proposals([handle]) for handle in handles]), q)
    for unknown in (-1, 4):
        with pytest.raises(DraftwoodError, match=f"handle {unknown}"):
            draws.proposals([0, unknown])
    draws.clear()
    with pytest.raises(DraftwoodError, match="handle 0"):
        draws.proposals([0])


def test_half_precision_logits_give_a_float32_q() -> None:
    draws = Draws(outputs())
    logits = rows(LOGITS, 2).to(torch.bfloat16)
    found = draws.draw(query(Draw.IID, 2, 1, temperature=0.7), logits.clone())
    assert found.q_rows is not None
    q = draws.proposals(found.q_rows.tolist())
    torch.testing.assert_close(q, (logits.float() / 0.7).softmax(-1), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    ("ids", "wrong"), [([0, 5, 1], "yields token 5, but the target has 5"), ([0, 2, 2], "token 2")]
)
def test_outputs_that_cannot_be_drawn_from_are_refused(ids: list[int], wrong: str) -> None:
    with pytest.raises(DraftwoodError, match=wrong):
        outputs(ids, 5)


@pytest.mark.parametrize(
    "ids", [[0, 1, 2], [0, 1, 2, -1], [0, -1, 2, 1], [4, 3, -1], [*range(5)], [0, 1, 2, 3, 4, -1]]
)
def test_rows_over_outputs_become_rows_over_tokens(ids: list[int]) -> None:
    row = torch.arange(1.0, len(ids) + 1)
    expected = [0.0] * 5
    for output, token in enumerate(ids):
        if token >= 0:
            expected[token] = float(row[output])
    known = outputs(ids, 5)
    assert known.target_rows([row, 2 * row]).tolist() == [expected, [2 * x for x in expected]]
    assert known.target_rows([row]).tolist() == [expected]
    assert known.outputs_of([0, 1, 2, 3, 4]).tolist() == [
        ids.index(t) for t in range(5) if t in ids
    ]
    assert known.target_rows([]).shape == (0, 5)
