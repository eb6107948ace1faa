"""CUDA graphs on a GPU: two models whose caches grow and whose forwards are recorded in turn."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.cuda_graphs import CudaGraphs
from draftwood.runner.runner import Runner
from tests.factories.path_logits import path_logits, random_prompts, random_tree, worst
from tests.factories.tiny_llama import VOCAB, tiny_llama

_TOLERANCE = 1e-3


def check(runner: Runner, slot: int, text: list[int], rng: np.random.Generator) -> None:
    for nodes in (1, 6, 6, 30, 1):
        tree = random_tree(rng, nodes, VOCAB)
        [rows] = runner.forward([slot], [tree], Needs())
        assert worst(rows, path_logits(runner.model, text, tree)) < _TOLERANCE


@pytest.mark.parametrize("fails", ["", "warm", "record"])
def test_workspaces_are_of_the_graphs_pool_and_streams_meet_again(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """On stand-ins: what is asked of CUDA, in order."""
    asked: list[str] = []

    class Stream:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: "Stream") -> None:
            asked.append(f"{self.name} waits for {other.name}")

    class Graph:
        def replay(self) -> None:
            asked.append("replay")

    @contextmanager
    def recording(*_: object, **__: object) -> Iterator[None]:
        asked.append("begin")
        yield
        asked.append("end")

    for name, stand_in in {
        "Stream": lambda device: Stream("side"),
        "current_stream": lambda: Stream("main"),
        "CUDAGraph": Graph,
        "graph": recording,
        "stream": nullcontext,
        "device": nullcontext,
        "graph_pool_handle": object,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(
        torch._C, "_cuda_clearCublasWorkspaces", lambda: asked.append("clear"), raising=False
    )

    def forward() -> Any:
        asked.append("forward")
        if fails and ("begin" in asked) == (fails == "record"):
            raise RuntimeError("no memory")

    graphs = CudaGraphs(torch.device("cpu"))
    expected = ["side waits for main", "forward", "forward", "clear", "begin", "forward", "end"]
    if fails:
        with pytest.raises(RuntimeError, match="no memory"):
            graphs.record(forward)
        expected = expected[: 2 if fails == "warm" else 6]
    else:
        graphs.record(forward)()
        expected += ["replay"]
    expected.insert(len(expected) - (not fails), "main waits for side")
    assert asked == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_forwards_follow_two_models_and_a_growing_cache() -> None:
    rng = np.random.default_rng(0)
    models: list[Any] = [tiny_llama(seed=seed, context=4096) for seed in range(2)]
    runners = [attach(model.to("cuda")) for model in models]
    assert all(runner._forward_pass.static is not None for runner in runners)
    texts = random_prompts(rng, (40, 25), VOCAB)
    slots = [runner.open(200) for runner in runners]
    for runner, slot, text in zip(runners, slots, texts, strict=True):
        runner.prefill([slot], [text], Needs())
    for grown in (False, True, True):
        if grown:  # the first model's alone, whose graphs are then gone
            cache = runners[0].cache
            cache.make_room([cache.row(slots[0])], [cache.size])
        for runner, slot, text in zip(runners, slots, texts, strict=True):
            check(runner, slot, text, rng)
    static = runners[0]._forward_pass.static
    assert static is not None
    assert not static.refused
    torch.cuda.synchronize()
