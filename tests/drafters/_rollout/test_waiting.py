"""Features that wait until a draft model is asked."""

import weakref

import numpy as np
import pytest
import torch

from draftwood.drafters._rollout import rollout
from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.drafters._rollout.waiting import WaitingFeatures
from draftwood.protocols import Expand, Outcome, Prefill, TargetInfo, TargetOutput
from draftwood.runner.attach import attach
from draftwood.runner.to_host import unread
from draftwood.tree import ROOT, TreeBuilder
from tests.factories.eagle3_heads import HT, LAYERS, V, tiny_config, tiny_head

WIDTH = len(tiny_config().taps) * HT


def test_all_are_taken_in_their_order_and_once() -> None:
    rng = np.random.default_rng(0)
    parts = [torch.from_numpy(rng.random((n, 3))) for n in (50, *[1] * 200, 4, 1)]
    waiting = WaitingFeatures()
    added = sum(waiting.add(part) for part in parts)
    assert (waiting.tokens, waiting.bytes) == (255, added) == (255, 255 * 3 * 8)
    assert torch.equal(torch.cat(waiting.take()), torch.cat(parts))
    assert (waiting.tokens, waiting.bytes, waiting.take()) == (0, 0, [])


def test_features_of_other_requests_do_not_stay_alive() -> None:
    waiting = WaitingFeatures()
    alive = []
    for _ in range(1000):
        every = np.zeros((32, 3))
        alive.append(weakref.ref(every))
        waiting.add(torch.from_numpy(every)[5:6])
        del every
    assert 0 < sum(found() is not None for found in alive) < 100


class Head:
    """A head whose projections are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.projected: list[int] = []
        head = tiny_head()
        project = head.project

        def counted(features: torch.Tensor) -> torch.Tensor:
            self.projected.append(len(features))
            return project(features)

        monkeypatch.setattr(head, "project", counted)
        target = TargetInfo(V, 4096, LAYERS, HT, torch.device("cpu"), torch.float32)
        self.drafter = HeadDrafter(head, attach(head, self_test=False), target)

    def begin(self, slot: int, tokens: int, steps: int) -> None:
        """A request with a prompt, that runs for some steps and does not draft."""
        made = torch.Generator().manual_seed(slot)

        def rows(n: int) -> TargetOutput:
            features = torch.randn(n, WIDTH, generator=made)
            return TargetOutput(torch.zeros(0, V), *unread(), features)

        self.drafter.begin(slot, Prefill(np.arange(tokens) % V, 5, rows(tokens)))
        for _ in range(steps):
            self.drafter.observe(slot, Outcome(TreeBuilder(5).build(), (), (5,), rows(1)))

    def asked(self, slot: int) -> list[int]:
        """The likeliest tokens after the root."""
        [found] = self.drafter.expand([slot], [Expand("draft", TreeBuilder(5), [ROOT], 3)])
        tokens: list[int] = found.tokens[0].tolist()
        return tokens


def test_nothing_is_projected_for_a_request_that_is_never_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = Head(monkeypatch)
    head.begin(0, tokens=100, steps=100)
    head.begin(1, tokens=30, steps=10)
    head.drafter.release(0)
    head.asked(1)
    assert head.projected == [40]


def test_features_wait_up_to_so_many_bytes_of_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    row = WIDTH * 4
    known = Head(monkeypatch)
    known.begin(0, tokens=100, steps=90)
    expected = known.asked(0)
    assert known.projected == [190]

    monkeypatch.setattr(rollout, "_MOST_WAITING", 250 * row)
    head = Head(monkeypatch)
    head.begin(7, tokens=200, steps=40)
    head.drafter.release(7)  # what it had does not count any more
    head.begin(1, tokens=80, steps=0)
    head.begin(0, tokens=100, steps=90)  # one step more than there is room for
    assert head.projected == [251]
    assert head.asked(0) == expected
    assert head.projected == [251, 19]
