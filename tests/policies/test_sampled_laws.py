"""The trees of the sampling policies are distributed as they declare, by going through all draws.

Three tokens, every possible outcome of every query. Trees that were tampered with are the negative
controls.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from draftwood.policies.dynatree import DynaTree
from draftwood.policies.sampled import Sampled
from draftwood.policies.sampled_spine import SampledSpine
from draftwood.policies.talon import Talon
from draftwood.protocols import Growth, Policy
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder
from tests.factories.enumerated_draws import Run, check_law, draws_of, runs
from tests.factories.scripted_sources import offer

WOR, IID, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.ONE_HOT


def q_of(path: tuple[int, ...]) -> Sequence[float]:
    """One token is impossible below 2, and all but one below 1, 1."""
    if path[-1:] == (2,):
        return (0.75, 0.25, 0.0)
    if path[-2:] == (1, 1):
        return (0.0, 1.0, 0.0)
    return ((0.2, 0.3, 0.5), (0.6, 0.1, 0.3))[sum(path) % 2]


def every(policy: Policy, chain: Sequence[int] = (), **limits: Any) -> list[Run]:
    limits = {"anchor": 0, "room": 9, "budget": 99, "temperature": 1.0} | limits
    return list(runs(policy, q_of, Growth(**limits), offer(*chain) if chain else ()))


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(
    ("last", "chain"),
    [("none", ()), ("top", ()), ("greedy", ()), ("context", (1, 1)), ("context", (2,))],
)
@pytest.mark.parametrize(("limits", "most"), [({}, 6), ({"budget": 3}, 3), ({"room": 1}, 2)])
def test_static_trees(
    replacement: bool, last: Any, chain: Sequence[int], limits: dict[str, int], most: int
) -> None:
    found = every(Sampled(shape="2x2", last=last, replacement=replacement), chain, **limits)
    check_law(found, q_of)
    assert max(run.tree.drafted for run in found) == most


@pytest.mark.parametrize("shape", ["1x1x1", "3x1", "2x1x1"])
@pytest.mark.parametrize("last", ["none", "top", "greedy"])
def test_other_shapes(shape: str, last: Any) -> None:
    check_law(every(Sampled(shape=shape, last=last)), q_of)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("last", ["none", "top"])
@pytest.mark.parametrize(
    "settings",
    [
        {"mu": 0.4, "top_k": 2, "budget": 5},
        {"mu": 0.5, "robust": 0, "budget": 4},
        {"mu": 0.2, "top_k": 3, "max_depth": 2, "budget": 6},
    ],
)
def test_talon(replacement: bool, last: Any, settings: dict[str, Any]) -> None:
    found = every(Talon(children="drawn", replacement=replacement, last=last, **settings))
    check_law(found, q_of)
    # The shape depends on the draws.
    assert len({tuple(run.tree.parents) for run in found}) > 1 or last == "top"


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("last", ["none", "top"])
@pytest.mark.parametrize(
    "settings",
    [
        {"b_max": 2, "tau_high": 0.7, "budget": 5},
        {"b_min": 1, "b_mid": 1, "tau_low": 0.3, "tau_high": 0.55, "budget": 4},
        {"b_max": 2, "rho_stop": 0.25, "tau": 0.15, "budget": 5},
    ],
)
def test_dynatree(replacement: bool, last: Any, settings: dict[str, Any]) -> None:
    found = every(DynaTree(children="drawn", replacement=replacement, last=last, **settings))
    check_law(found, q_of)
    assert len({tuple(run.tree.parents) for run in found}) > 1 or last == "top"


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(
    ("chain", "settings"),
    [
        ((1, 1), {"ratio": 0.5, "budget": 5, "top_k": 2}),
        ((2, 2), {"ratio": 0.5, "budget": 5}),  # the drafter thinks 2 after 2 impossible
        ((1,), {"ratio": 0.3, "budget": 4, "rho": 0.2}),
        ((), {"budget": 5, "top_k": 2}),
        ((), {"budget": 6, "top_k": 2, "rho": 0.8, "max_depth": 2}),
    ],
)
def test_spine(replacement: bool, chain: Sequence[int], settings: dict[str, Any]) -> None:
    policy = SampledSpine(replacement=replacement, bypass="off", **settings)
    found = every(policy, chain)
    check_law(found, q_of)
    assert {run.tree.route for run in found} == {"spine" if chain else "transition"}


@pytest.mark.parametrize(
    "policy", [Sampled(), Talon(children="drawn"), DynaTree(children="drawn"), SampledSpine()]
)
def test_a_greedy_tree_is_certain(policy: Policy) -> None:
    (run,) = every(policy, (1, 2), temperature=0.0, budget=7)
    check_law([run], q_of)
    assert run.probability == 1.0
    assert run.tree.drafted == 7


# --- negative controls ----------------------------------------------------------------------------


def tampered(tree: TokenTree, keep: Callable[[int], bool], key: Callable[[int], Any]) -> TokenTree:
    """The tree of the nodes to keep, in the order of a key; its own order is not the tokens'."""
    builder = TreeBuilder(int(tree.tokens[ROOT]))
    moved = {ROOT: ROOT}
    nodes = [node for node in range(1, len(tree)) if keep(node)]
    for node in sorted(nodes, key=lambda node: (tree.depths[node], key(node))):
        if int(tree.parents[node]) in moved:
            moved[node] = builder.add(
                moved[int(tree.parents[node])],
                int(tree.tokens[node]),
                tree.sources[node],
                logq=float(tree.logq[node]),
                draw=Draw(tree.draws[node]),
                q_row=int(tree.q_rows[node]),
            )
    return builder.build()


def all_of(tree: TokenTree) -> Callable[[int], bool]:
    return lambda node: True


def likely(tree: TokenTree) -> Callable[[int], bool]:
    return lambda node: float(tree.logq[node]) > -1.5  # above .22


def first_of_equals(tree: TokenTree) -> Callable[[int], bool]:
    return lambda node: tree.child(int(tree.parents[node]), int(tree.tokens[node])) == node


def as_drawn(tree: TokenTree) -> Callable[[int], Any]:
    return lambda node: node


def by_token(tree: TokenTree) -> Callable[[int], Any]:
    return lambda node: int(tree.tokens[node])


@pytest.mark.parametrize(
    ("keep", "key", "replacement", "fair"),
    [
        (all_of, as_drawn, False, True),
        (all_of, as_drawn, True, True),
        (likely, as_drawn, False, False),
        (first_of_equals, as_drawn, True, False),
        (all_of, by_token, False, False),
    ],
)
def test_what_is_done_to_a_drawn_tree_is_noticed(
    keep: Any, key: Any, replacement: bool, fair: bool
) -> None:
    found = [
        Run(run.probability, tampered(run.tree, keep(run.tree), key(run.tree)), run.handles)
        for run in every(Sampled(shape="2x1", replacement=replacement))
    ]
    if fair:
        check_law(found, q_of)
    else:
        with pytest.raises(AssertionError):
            check_law(found, q_of)


def test_the_ways_to_draw() -> None:
    assert dict(draws_of((0.2, 0.3, 0.5), 2, WOR))[2, 0] == pytest.approx(0.5 * 0.4)
    assert [tokens for tokens, _ in draws_of((0.75, 0.25, 0.0), 3, WOR)] == [(0, 1), (1, 0)]
    assert [p for _, p in draws_of((0.75, 0.25, 0.0), 3, WOR)] == pytest.approx([0.75, 0.25])
    assert len(draws_of((0.2, 0.3, 0.5), 2, IID)) == 9
    assert draws_of((0.0, 0.0, 0.0), 2, IID) == [((), 1.0)]
