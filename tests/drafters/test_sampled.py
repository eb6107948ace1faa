"""Sampled queries to a draft model that is exact, so that answers can be compared bit by bit."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.errors import DraftwoodError
from draftwood.protocols import Expand, Needs, Outcome, Prefill, TargetInfo, TargetOutput
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder
from tests.factories.markov_target import MarkovTarget

ANY_ROWS: Any = None


def target_of(vocab: int) -> TargetInfo:
    return TargetInfo(vocab, 256, 1, 1, torch.device("cpu"), torch.float32)


class Watched(MarkovTarget):
    """An exact draft model that notes how many of its likeliest tokens were wanted."""

    def __init__(self) -> None:
        super().__init__(sharpness=1.0)
        self.wanted: list[int] = []

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
        unread: Sequence[int] = (),
    ) -> list[TargetOutput]:
        self.wanted.append(needs.top_k)
        return super().forward(slots, trees, needs, done, hidden, unread)


class Request:
    """One request, whose tree is the root and a chain of two."""

    def __init__(self, drafter: ModelDrafter, slot: int) -> None:
        self.slot = slot
        drafter.begin(slot, Prefill(np.array([1, 2, slot]), 3, ANY_ROWS))
        self.builder = TreeBuilder(3)
        self.builder.add_chain([4, 5 + slot], "given")
        self.query = Expand("draft", self.builder, [ROOT, 1, 2], 3)

    def sampled(self, draw: Draw, temperature: float = 0.9) -> Expand:
        noise = RequestNoise(self.slot, 100 + self.slot)
        return dataclasses.replace(self.query, draw=draw, temperature=temperature, noise=noise)


def answered(drafter: ModelDrafter, requests: Sequence[Request], queries: Sequence[Expand]) -> Any:
    """The answer to each request, with its q."""
    found = drafter.expand([request.slot for request in requests], queries)
    every = []
    for request, answer in zip(requests, found, strict=True):
        q: list[Any] = []
        if answer.q_rows is not None:
            q = drafter.proposals(request.slot, answer.q_rows.tolist()).tolist()
        every.append((answer.tokens.tolist(), answer.logq.tolist(), q))
    return every


def test_draws_depend_on_the_request_and_the_node_only() -> None:
    kinds = (Draw.IID, Draw.ONE_HOT, Draw.WITHOUT_REPLACEMENT, Draw.WITHOUT_REPLACEMENT)
    heats = (0.5, 1.0, 0.9, 2.0)
    together = ModelDrafter(Watched(), target_of(13))
    requests = [Request(together, slot) for slot in range(4)]
    queries = [requests[i].sampled(kinds[i], heats[i]) for i in range(4)]
    order = [2, 0, 3, 1]
    found = answered(together, [requests[i] for i in order], [queries[i] for i in order])
    for place, i in enumerate(order):
        alone = ModelDrafter(Watched(), target_of(13))
        request = Request(alone, i)
        query = request.sampled(kinds[i], heats[i])
        assert answered(alone, [request], [query]) == [found[place]]
        # Once more, and node by node in another order.
        assert answered(alone, [request], [query]) == [found[place]]
        for node in (2, ROOT, 1):
            one = dataclasses.replace(query, nodes=[node])
            [(tokens, logq, q)] = answered(alone, [request], [one])
            assert tokens[0] == found[place][0][node]
            assert logq[0] == pytest.approx(found[place][1][node], abs=1e-6)
            assert q == ([] if i == 1 else [found[place][2][node]])


@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
def test_samples_come_from_the_models_own_softmax(draw: Draw) -> None:
    model = Watched()
    drafter = ModelDrafter(model, target_of(13))
    request = Request(drafter, 6)
    [(tokens, logq, q)] = answered(drafter, [request], [request.sampled(draw, 0.7)])
    for node, path in enumerate(([3], [3, 4], [3, 4, 11])):
        expected = (model.logits([1, 2, 6, *path]) / 0.7).softmax(-1)
        assert q[node] == pytest.approx(expected.tolist(), abs=1e-6)
        assert logq[node] == pytest.approx(expected[tokens[node]].log().tolist(), abs=1e-5)


def test_top_k_is_computed_only_for_one_hot_queries() -> None:
    model = Watched()
    drafter = ModelDrafter(model, target_of(13))
    first, second = Request(drafter, 0), Request(drafter, 1)
    drafter.expand([0], [first.sampled(Draw.IID)])
    assert model.wanted == [0]
    # They can still be had of a node that was only sampled.
    [answer] = drafter.expand([0], [first.query])
    best = model.logits([1, 2, 0, 3, 4]).topk(3).indices.tolist()
    assert answer.tokens[1].tolist() == best
    for request in (first, second):
        drafter.observe(request.slot, Outcome(request.builder.build(), (), (9,), ANY_ROWS))
        request.builder = TreeBuilder(9)
    queries = [
        Expand("draft", first.builder, [ROOT], 3, Draw.IID, noise=RequestNoise(1)),
        Expand("draft", second.builder, [ROOT], 2, exclude=[frozenset({1, 2})]),
    ]
    drafter.expand([0, 1], queries)
    assert model.wanted == [0, 4]


def test_a_step_forgets_what_was_drawn() -> None:
    drafter = ModelDrafter(Watched(), target_of(13))
    request = Request(drafter, 0)
    [first] = drafter.expand([0], [request.sampled(Draw.IID)])
    # A tree that is grown anew in the same step: nothing is forgotten yet.
    query = dataclasses.replace(request.sampled(Draw.IID), tree=TreeBuilder(3), nodes=[ROOT])
    [second] = drafter.expand([0], [query])
    assert first.q_rows is not None
    assert second.q_rows is not None
    assert [first.q_rows.tolist(), second.q_rows.tolist()] == [[0, 1, 2], [3]]
    q = drafter.proposals(0, [0, 3])
    assert torch.equal(q[0], q[1])
    drafter.observe(0, Outcome(request.builder.build(), (), (5,), ANY_ROWS))
    with pytest.raises(DraftwoodError, match="handle 0"):
        drafter.proposals(0, [0])
    drafter.expand([0], [dataclasses.replace(query, tree=TreeBuilder(5))])
    assert drafter.proposals(0, [0]).shape == (1, 13)
    Request(drafter, 0)
    with pytest.raises(DraftwoodError, match="handle 0"):
        drafter.proposals(0, [0])


def test_beyond_the_context_nothing_is_sampled() -> None:
    drafter = ModelDrafter(MarkovTarget(context_limit=5), target_of(13))
    request = Request(drafter, 0)
    query = dataclasses.replace(request.sampled(Draw.IID), nodes=[1, 2])
    [answer] = drafter.expand([0], [query])
    assert answer.q_rows is not None
    assert answer.tokens.tolist() == [[-1] * 3] * 2
    assert answer.q_rows.tolist() == [-1, -1]
    [answer] = drafter.expand([0], [dataclasses.replace(query, nodes=[1])])
    assert answer.tokens.min() >= 0


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"draw": Draw.IID}, "IID children has no noise"),
        ({"draw": Draw.WITHOUT_REPLACEMENT}, "WITHOUT_REPLACEMENT children has no noise"),
        ({"temperature": 0.0}, "temperature is 0.0; give one above 0"),
        ({"temperature": -1.0, "draw": Draw.IID, "noise": RequestNoise(0)}, "-1.0; give one"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
    ],
)
def test_invalid_queries_are_refused(changes: Any, wrong: str) -> None:
    drafter = ModelDrafter(Watched(), target_of(13))
    request = Request(drafter, 0)
    with pytest.raises(DraftwoodError, match=wrong):
        drafter.expand([0], [dataclasses.replace(request.query, **changes)])
    assert drafter.forwards == 0
