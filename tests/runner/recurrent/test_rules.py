"""Recurrent layers over trees: each node and each committed path has what its text would have."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftwood.runner.recurrent import ancestry as ancestry_module
from draftwood.runner.recurrent.ancestry import Ancestry, ancestry
from draftwood.runner.recurrent.convolution import commit_inputs, convolved
from draftwood.runner.recurrent.gated_delta import Kept, commit, gated_delta
from draftwood.runner.recurrent.mamba1 import selective_scan_by_depth
from draftwood.runner.recurrent.mamba2 import commit_scan, selective_scan
from tests.runner.recurrent.sequential import (
    Step,
    convolution_step,
    delta_step,
    mamba1_step,
    mamba2_step,
    over_tree,
)

CPU = torch.device("cpu")
CHAIN, STAR = [-1, 0, 1, 2, 3, 4, 5, 6, 7], [-1, 0, 0, 0, 0, 0]
BUSHY = [-1, 0, 0, 1, 1, 2, 3, 3, 5, 8, 4, 4]
SHAPES = [[CHAIN], [STAR], [BUSHY], [[-1]], [BUSHY, [-1], CHAIN], [STAR, BUSHY]]
WIDTH, VALUES, HEADS, TAPS = 6, 5, 3, 4
CLOSE = {torch.float64: 1e-12, torch.float32: 3e-5}


@dataclass(frozen=True)
class Strength:
    """How much decays in a step, -log of it at most, and the largest beta."""

    decay: float = 1.0
    beta: float = 1.0


STRENGTHS = [Strength(), Strength(1e-6), Strength(60.0), Strength(0.1, 1.999)]


def trees_of(sizes: Sequence[int], seed: int) -> list[list[int]]:
    """Random trees."""
    generator = torch.Generator().manual_seed(seed)
    return [
        [-1, *(int(torch.randint(node, (), generator=generator)) for node in range(1, size))]
        for size in sizes
    ]


def grown(
    parents: Sequence[Sequence[int]], firsts: Sequence[int]
) -> tuple[Ancestry | None, Ancestry]:
    """The trees of which the first nodes were computed before, if any were, and all of them."""
    trees = ancestry(parents, firsts, CPU)
    if not trees.done:
        return None, trees
    begun = [own[:first] or [-1] for own, first in zip(parents, firsts, strict=True)]
    return ancestry(begun, [0] * len(begun), CPU), trees


class Numbers:
    """Random numbers of one tree after another, in float64."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype

    def normal(self, *sizes: int) -> torch.Tensor:
        found = torch.randn(sizes, generator=self._generator, dtype=torch.float64)
        return found.to(self._dtype)

    def uniform(self, *sizes: int) -> torch.Tensor:
        found = torch.rand(sizes, generator=self._generator, dtype=torch.float64)
        return found.to(self._dtype)


def padded(
    parts: Sequence[torch.Tensor], trees: Ancestry, parents: Sequence[Sequence[int]], dim: int
) -> torch.Tensor:
    """Numbers of the nodes of each tree, where the trees' places are; NaN-free noise elsewhere."""
    shape = list(parts[0].shape)
    shape[dim] = trees.shown.shape[1]
    found = torch.full((len(parts), *shape), 0.5, dtype=parts[0].dtype)
    for i, (part, own) in enumerate(zip(parts, parents, strict=True)):
        found[i].index_copy_(dim, trees.places[i, : len(own)], part)
    return found


def paths_of(
    parents: Sequence[Sequence[int]], ends: Sequence[int], trees: Ancestry
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Places of the nodes from each root to one of its nodes, padded, and which are no padding."""
    paths = []
    for own, node in zip(parents, ends, strict=True):
        path, at = [], node
        while at >= 0:
            path.append(at)
            at = own[at]
        paths.append(path[::-1])
    most = max(map(len, paths))
    places = torch.stack(
        [
            trees.places[i][torch.tensor([*path, *[path[-1]] * (most - len(path))])]
            for i, path in enumerate(paths)
        ]
    )
    if all(len(path) == most for path in paths):
        return places, None
    return places, torch.tensor([[i < len(path) for i in range(most)] for path in paths])


def compare(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to rounding, relative to the largest number."""
    scale = max(1.0, float(expected.abs().max()))
    assert float((found - expected).abs().max()) <= CLOSE[found.dtype] * scale


def last_nodes(parents: Sequence[Sequence[int]]) -> list[int]:
    return [len(own) - 1 for own in parents]


@dataclass
class Delta:
    """A gated delta rule's inputs for some trees, padded and by tree."""

    steps: list[Step]
    inputs: list[torch.Tensor]
    state: torch.Tensor


def delta_inputs(
    parents: Sequence[Sequence[int]],
    trees: Ancestry,
    dtype: torch.dtype,
    strength: Strength,
    *,
    channels: bool,
) -> Delta:
    numbers, parts = Numbers(len(parents), dtype), []
    for own in parents:
        n = len(own)
        keys = torch.nn.functional.normalize(numbers.normal(HEADS, n, WIDTH), dim=-1)
        decays = numbers.uniform(*(HEADS, n, WIDTH)[: 3 if channels else 2])
        parts.append(
            (
                numbers.normal(HEADS, n, WIDTH),
                keys,
                numbers.normal(HEADS, n, VALUES),
                -strength.decay * decays,
                strength.beta * numbers.uniform(HEADS, n).sqrt(),
            )
        )
    state = numbers.normal(len(parents), HEADS, WIDTH, VALUES)
    inputs = [padded(each, trees, parents, 1) for each in zip(*parts, strict=True)]
    return Delta([delta_step(*part) for part in parts], inputs, state)


def delta(
    inputs: Sequence[torch.Tensor], state: torch.Tensor, trees: Ancestry, kept: Kept | None = None
) -> tuple[torch.Tensor, Kept]:
    queries, keys, values, logs, beta = inputs
    return gated_delta(queries, keys, values, logs, beta, state, trees, kept)


def scan(
    inputs: Sequence[torch.Tensor], state: torch.Tensor, trees: Ancestry, kept: Kept | None = None
) -> tuple[torch.Tensor, Kept]:
    x, dt, logs, b_in, c_out = inputs
    return selective_scan(x, dt, logs, b_in, c_out, state, trees, kept)


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("parents", SHAPES, ids=str)
def test_a_gated_delta_rule_over_trees(
    parents: list[list[int]], channels: bool, strength: Strength, dtype: torch.dtype
) -> None:
    trees = ancestry(parents, [0] * len(parents), CPU)
    asked = delta_inputs(parents, trees, dtype, strength, channels=channels)
    output, kept = delta(asked.inputs, asked.state, trees)
    check_delta(parents, trees, asked, output, kept)


def check_delta(
    parents: Sequence[Sequence[int]],
    trees: Ancestry,
    asked: Delta,
    output: torch.Tensor,
    kept: Kept,
) -> None:
    """Compare all nodes from ``trees.done`` on, and the state behind the last node of each tree."""
    after = asked.state.clone()
    commit(after, kept, *paths_of(parents, last_nodes(parents), trees))
    for i, (own, step) in enumerate(zip(parents, asked.steps, strict=True)):
        states, outputs = over_tree(own, asked.state[i], step)
        for node, expected in enumerate(outputs):
            place = int(trees.places[i, node]) - trees.done
            if place >= 0:
                compare(output[i, :, place], expected)
        compare(after[i], states[-1])


def check_growing_delta(
    parents: Sequence[Sequence[int]], firsts: Sequence[int], strength: Strength, *, channels: bool
) -> None:
    """Compare trees that are computed in two forwards."""
    begun, trees = grown(parents, firsts)
    asked = delta_inputs(parents, trees, torch.float64, strength, channels=channels)
    kept = None
    if begun is not None:
        first = [each[:, :, : trees.done] for each in asked.inputs]
        _, kept = delta(first, asked.state, begun)
    rest = [each[:, :, trees.done :] for each in asked.inputs]
    output, kept = delta(rest, asked.state, trees, kept)
    check_delta(parents, trees, asked, output, kept)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("done", [[0, 3], [5, 1], [7, 7], [1, 0]])
def test_a_tree_that_grows(done: list[int], channels: bool) -> None:
    """As of a draft model, which computes level after level."""
    parents = trees_of((12, 9), seed=sum(done))
    check_growing_delta(parents, done, Strength(), channels=channels)


GROWING = st.lists(
    st.integers(1, 24).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))),
    min_size=1,
    max_size=3,
)
"""Nodes of each tree, and how many of them were computed before."""
SEEDS = st.integers(0, 1 << 30)


@given(GROWING, SEEDS, st.booleans())
def test_random_trees(sizes: list[tuple[int, int]], seed: int, channels: bool) -> None:
    parents = trees_of([size for size, _ in sizes], seed)
    check_growing_delta(parents, [first for _, first in sizes], Strength(4.0), channels=channels)


@pytest.mark.parametrize("parents", [[BUSHY], [[-1]], [BUSHY, [-1], CHAIN]], ids=str)
def test_heads_that_share_keys_have_what_copies_of_these_give(parents: list[list[int]]) -> None:
    trees = ancestry(parents, [0] * len(parents), CPU)
    asked = delta_inputs(parents, trees, torch.float64, Strength(), channels=False)
    queries, keys, values, logs, beta = asked.inputs
    few, same = (queries[:, :1], keys[:, :1]), (HEADS, -1, -1)
    many = few[0].expand(-1, *same), few[1].expand(-1, *same)
    path = paths_of(parents, last_nodes(parents), trees)
    rest = (values, logs, beta)
    found, of_groups = delta([*few, *rest], asked.state, trees)
    wanted, of_heads = delta([*many, *rest], asked.state, trees)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert of_groups.keys.shape[1] == 1
    after, expected = asked.state.clone(), asked.state.clone()
    commit(after, of_groups, *path)
    commit(expected, of_heads, *path)
    torch.testing.assert_close(after, expected, rtol=1e-12, atol=1e-12)

    state = asked.state.transpose(2, 3).contiguous()
    found, of_groups = scan([values, beta, logs, *few], state, trees)
    wanted, of_heads = scan([values, beta, logs, *many], state, trees)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    after, expected = state.clone(), state.clone()
    commit_scan(after, of_groups, *path)
    commit_scan(expected, of_heads, *path)
    torch.testing.assert_close(after, expected, rtol=1e-12, atol=1e-12)


def test_much_decay_loses_no_digits() -> None:
    """Sums along paths, where differences of sums from the root would lose half of the digits."""
    [parents] = trees_of((128,), seed=3)
    chain = [*range(-1, 127)]
    for own in (parents, chain):
        trees = ancestry([own], [0], CPU)
        wanted = delta_inputs([own], trees, torch.float64, Strength(30.0), channels=False)
        exact, _ = delta(wanted.inputs, wanted.state, trees)
        inputs = [each.float() for each in wanted.inputs]
        found, _ = delta(inputs, wanted.state.float(), trees)
        assert float((found - exact).abs().max() / exact.abs().max()) < 5e-7


def test_blocks_of_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = ancestry([BUSHY], [0], CPU)
    asked = delta_inputs([BUSHY], trees, torch.float64, Strength(), channels=True)
    whole, _ = delta(asked.inputs, asked.state, trees)
    monkeypatch.setattr(ancestry_module, "_NUMBERS", 16 * HEADS * WIDTH)
    pairs = trees.pairs.below.shape[1]
    assert pairs == int(trees.shown.sum())
    assert len(ancestry_module.blocks(pairs, HEADS * WIDTH)) == 3
    parts, _ = delta(asked.inputs, asked.state, trees)
    torch.testing.assert_close(parts, whole, rtol=1e-13, atol=1e-13)


def test_siblings_in_their_order_are_told() -> None:
    """The comparison sees a rule that takes the nodes for a text."""
    trees = ancestry([STAR], [0], CPU)
    asked = delta_inputs([STAR], trees, torch.float64, Strength(), channels=False)
    text = ancestry([[*range(-1, len(STAR) - 1)]], [0], CPU)
    output, kept = delta(asked.inputs, asked.state, text)
    with pytest.raises(AssertionError):
        check_delta([STAR], trees, asked, output, kept)


def first_of(parents: Sequence[Sequence[int]], done: int) -> list[int]:
    """So many first nodes of each tree, or all but one."""
    return [min(done, len(own) - 1) for own in parents]


def check_mamba2(
    parents: Sequence[Sequence[int]],
    firsts: Sequence[int],
    decay: float,
    dtype: torch.dtype,
    seed: int = 5,
) -> None:
    begun, trees = grown(parents, firsts)
    numbers, parts = Numbers(seed, dtype), []
    for own in parents:
        dt, a = numbers.uniform(HEADS, len(own)), -decay * numbers.uniform(HEADS, 1)
        b_in, c_out = numbers.normal(HEADS, len(own), WIDTH), numbers.normal(HEADS, len(own), WIDTH)
        parts.append((numbers.normal(HEADS, len(own), VALUES), dt, dt * a, b_in, c_out))
    state = numbers.normal(len(parents), HEADS, VALUES, WIDTH)
    inputs = [padded(each, trees, parents, 1) for each in zip(*parts, strict=True)]
    kept = None
    if begun is not None:
        _, kept = scan([each[:, :, : trees.done] for each in inputs], state, begun)
    rest = [each[:, :, trees.done :] for each in inputs]
    output, kept = scan(rest, state, trees, kept)
    after = state.clone()
    commit_scan(after, kept, *paths_of(parents, last_nodes(parents), trees))
    for i, own in enumerate(parents):
        states, outputs = over_tree(own, state[i], mamba2_step(*parts[i]))
        for node in range(firsts[i], len(own)):
            compare(output[i, :, int(trees.places[i, node]) - trees.done], outputs[node])
        compare(after[i], states[-1])


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("decay", [1e-6, 1.0, 60.0])
@pytest.mark.parametrize("parents", SHAPES, ids=str)
@pytest.mark.parametrize("done", [0, 1])
def test_mamba2_over_trees(
    parents: list[list[int]], done: int, decay: float, dtype: torch.dtype
) -> None:
    check_mamba2(parents, first_of(parents, done), decay, dtype)


@given(GROWING, SEEDS, st.sampled_from([1e-6, 1.0, 60.0]))
def test_mamba2_over_random_trees(sizes: list[tuple[int, int]], seed: int, decay: float) -> None:
    parents = trees_of([size for size, _ in sizes], seed)
    check_mamba2(parents, [first for _, first in sizes], decay, torch.float64, seed)


def check_mamba1(
    parents: Sequence[Sequence[int]], firsts: Sequence[int], dtype: torch.dtype, seed: int = 7
) -> None:
    begun, trees = grown(parents, firsts)
    numbers = Numbers(seed, dtype)
    a = -4 * numbers.uniform(VALUES, WIDTH)
    parts = [
        (
            numbers.normal(VALUES, len(own)),
            numbers.uniform(VALUES, len(own)),
            numbers.normal(WIDTH, len(own)),
            numbers.normal(WIDTH, len(own)),
        )
        for own in parents
    ]
    state = numbers.normal(len(parents), VALUES, WIDTH)
    x, dt, b_in, c_out = (padded(each, trees, parents, 1) for each in zip(*parts, strict=True))
    kept = None
    if begun is not None:
        one, two, three, four = (each[..., : trees.done] for each in (x, dt, b_in, c_out))
        _, kept = selective_scan_by_depth(one, two, a, three, four, state, begun)
    x, dt, b_in, c_out = (each[..., trees.done :] for each in (x, dt, b_in, c_out))
    output, kept = selective_scan_by_depth(x, dt, a, b_in, c_out, state, trees, kept)
    for i, own in enumerate(parents):
        own_x, own_dt, own_b, own_c = parts[i]
        states, outputs = over_tree(own, state[i], mamba1_step(own_x, own_dt, a, own_b, own_c))
        for node in range(len(own)):
            place = int(trees.places[i, node])
            compare(kept[i, place], states[node])
            if node >= firsts[i]:
                compare(output[i, :, place - trees.done], outputs[node])


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("parents", SHAPES, ids=str)
@pytest.mark.parametrize("done", [0, 1])
def test_mamba1_over_trees(parents: list[list[int]], done: int, dtype: torch.dtype) -> None:
    check_mamba1(parents, first_of(parents, done), dtype)


@given(GROWING, SEEDS)
def test_mamba1_over_random_trees(sizes: list[tuple[int, int]], seed: int) -> None:
    parents = trees_of([size for size, _ in sizes], seed)
    check_mamba1(parents, [first for _, first in sizes], torch.float64, seed)


def check_convolution(
    parents: Sequence[Sequence[int]],
    firsts: Sequence[int],
    taps: int,
    seed: int = 9,
    *,
    biased: bool,
) -> None:
    trees, numbers = ancestry(parents, firsts, CPU), Numbers(seed, torch.float64)
    parts = [numbers.normal(len(own), WIDTH) for own in parents]
    stored = numbers.normal(len(parents), taps - 1, WIDTH)
    weight, bias = numbers.normal(WIDTH, taps), numbers.normal(WIDTH) if biased else None
    inputs = padded(parts, trees, parents, 0)
    output = convolved(inputs, stored, weight, bias, trees)
    after = stored.clone()
    commit_inputs(after, (inputs,), *paths_of(parents, last_nodes(parents), trees))
    for i, own in enumerate(parents):
        states, outputs = over_tree(own, stored[i], convolution_step(parts[i], weight, bias))
        for node in range(firsts[i], len(own)):
            compare(output[i, int(trees.places[i, node]) - trees.done], outputs[node])
        assert torch.equal(after[i], states[-1])


@pytest.mark.parametrize("taps", [1, 2, TAPS, 7])
@pytest.mark.parametrize("parents", SHAPES, ids=str)
@pytest.mark.parametrize("done", [0, 1])
@pytest.mark.parametrize("biased", [False, True])
def test_convolutions_over_trees(
    parents: list[list[int]], done: int, taps: int, biased: bool
) -> None:
    check_convolution(parents, first_of(parents, done), taps, biased=biased)


@given(GROWING, SEEDS, st.integers(1, 7), st.booleans())
def test_convolutions_over_random_trees(
    sizes: list[tuple[int, int]], seed: int, taps: int, biased: bool
) -> None:
    parents = trees_of([size for size, _ in sizes], seed)
    check_convolution(parents, [first for _, first in sizes], taps, seed, biased=biased)


def test_a_convolution_in_bfloat16_is_computed_in_float32() -> None:
    trees, numbers = ancestry([BUSHY], [0], CPU), Numbers(1, torch.bfloat16)
    inputs, stored = numbers.normal(1, len(BUSHY), 4), numbers.normal(1, 2, 4)
    weight = numbers.normal(4, 3)
    output = convolved(inputs, stored, weight, None, trees)
    assert output.dtype == torch.float32
    whole = convolved(inputs.float(), stored.float(), weight.float(), None, trees)
    assert torch.equal(output, whole)
