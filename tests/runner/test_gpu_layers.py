"""Layers of a GPU's kernels compute what the layers do, and step aside where they would not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GraniteConfig, GraniteForCausalLM

from draftwood.kernels.gpu import AttendTrees
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.block_cache import BlockCache
from draftwood.runner.gpu_layers import GpuLayer, GpuLayers, fuse_gpu_layers
from draftwood.runner.masks import layer_kinds
from draftwood.runner.runner import Runner
from draftwood.runner.static import StaticForward
from tests.factories.interpreted_attention import attend_by_kernel, interpreted_attention
from tests.factories.model_families import FAMILIES, SMALL, VOCAB, make_model
from tests.factories.path_logits import TOLERANCE, path_logits, random_prompts, random_tree, worst

CPU = torch.device("cpu")
FUSED = ["llama", "mistral", "mistral_sliding", "qwen2", "qwen3"]


@pytest.fixture
def attend() -> AttendTrees:
    return interpreted_attention()


@contextmanager
def attached(model: Any, attend: AttendTrees) -> Iterator[Runner]:
    """A model's runner with the attention kernel and the fused layers, as on a GPU."""
    runner = attach(model, packing=False, self_test=False)
    forward_pass, kinds = runner._forward_pass, layer_kinds(model.config)
    attention = model.model.layers[0].self_attn
    group = getattr(attention, "num_key_value_groups", 1)
    attend_by_kernel(runner, kinds, group)
    forward_pass._fused_layers = fuse_gpu_layers(model, attend, torch.float32, CPU)
    yield runner
    runner.detach()


def layers(runner: Runner) -> GpuLayers:
    found = runner._forward_pass._fused_layers
    assert isinstance(found, GpuLayers)
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indices of layers whose last norm the kernels have computed."""
    found: list[int] = []
    run = GpuLayer._add_norm

    def counted(self: GpuLayer, x: torch.Tensor, change: Any, which: int) -> Any:
        if which == 1:
            found.append(self.index)
        return run(self, x, change, which)

    monkeypatch.setattr(GpuLayer, "_add_norm", counted)
    return found


def check(runner: Runner, texts: list[list[int]], taps: tuple[int, ...] = ()) -> None:
    """Trees have the logits of their paths."""
    rng = np.random.default_rng(3)
    slots = [runner.open(60) for _ in texts]
    runner.prefill(slots, texts, Needs())
    for sizes in ((1, 1), (9, 4)):
        trees = [random_tree(rng, size, VOCAB) for size, _ in zip(sizes, texts, strict=False)]
        rows = runner.forward(slots, trees, Needs(taps=taps))
        for row, text, tree in zip(rows, texts, trees, strict=True):
            assert worst(row, path_logits(runner.model, text, tree)) < TOLERANCE
    for slot in slots:
        runner.release(slot)


@pytest.mark.parametrize("family", FUSED)
@pytest.mark.parametrize("lengths", [(20,), (13, 30)], ids=str)
def test_trees_have_the_logits_of_their_paths(
    family: str, lengths: tuple[int, ...], attend: AttendTrees, calls: list[int]
) -> None:
    texts = random_prompts(np.random.default_rng(0), lengths, VOCAB)
    with attached(FAMILIES[family](), attend) as runner:
        count = runner.info.layers
        assert len(layers(runner)) == count
        calls.clear()
        check(runner, texts)
        assert calls[-count:] == list(range(count))


def test_other_layers_are_left_as_they_are(attend: AttendTrees) -> None:
    """Granite's have Llama's modules, and scale what they add."""
    model = make_model(GraniteForCausalLM, GraniteConfig, **SMALL, residual_multiplier=0.7)
    with attached(model, attend) as runner:
        assert len(layers(runner)) == 0
        check(runner, [[1, 2, 3, 4]])


def test_states_between_layers_are_read(attend: AttendTrees) -> None:
    with attached(FAMILIES["llama"](), attend) as runner:
        slot = runner.open(30)
        runner.prefill([slot], [[1, 2, 3]], Needs())
        rng = np.random.default_rng(1)
        tree = random_tree(rng, 5, VOCAB)
        [fused] = runner.forward([slot], [tree], Needs(taps=(0, 1)))
        runner._forward_pass._fused_layers = GpuLayers()
        [plain] = runner.forward([slot], [tree], Needs(taps=(0, 1)))
        assert fused.features is not None
        assert plain.features is not None
        assert torch.allclose(fused.features, plain.features, atol=TOLERANCE)


def test_layers_that_have_changed_run_by_themselves(attend: AttendTrees, calls: list[int]) -> None:
    texts = random_prompts(np.random.default_rng(0), (9,), VOCAB)
    with attached(FAMILIES["llama"](), attend) as runner:
        model: Any = runner.model
        first, second = model.model.layers[:2]
        seen: list[int] = []
        hook = first.self_attn.register_forward_hook(lambda *_: seen.append(1))
        calls.clear()
        check(runner, texts)
        assert seen
        assert 0 not in calls
        assert 1 in calls
        hook.remove()
        # Between two layers, what the first one hands on may be replaced.
        hook = first.register_forward_hook(lambda _, __, output: output * 2)
        check(runner, texts)
        hook.remove()
        hook = second.register_forward_pre_hook(lambda _, given: (given[0] * 2, *given[1:]))
        check(runner, texts)
        hook.remove()
        second.input_layernorm.weight = nn.Parameter(
            second.input_layernorm.weight.detach().clone() * 2
        )
        calls.clear()
        check(runner, texts)
        assert 1 not in calls


def test_linears_are_called_as_they_are(attend: AttendTrees, calls: list[int]) -> None:
    """So quantised ones and adapters need nothing of their own."""
    texts = random_prompts(np.random.default_rng(0), (9,), VOCAB)
    with attached(FAMILIES["qwen3"](), attend) as runner:
        model: Any = runner.model
        model.model.layers[0].mlp.up_proj.register_forward_hook(lambda _, __, output: output * 2)
        calls.clear()
        check(runner, texts)
        assert 0 in calls


def test_layers_run_in_buckets(attend: AttendTrees, calls: list[int]) -> None:
    with attached(FAMILIES["llama"](), attend) as runner:
        forward_pass = runner._forward_pass
        assert isinstance(forward_pass.cache, BlockCache)
        forward_pass.static = StaticForward(forward_pass.call, forward_pass.cache, CPU, None)
        calls.clear()
        check(runner, random_prompts(np.random.default_rng(0), (9, 12), VOCAB))
        assert calls


def test_the_weights_of_one_input_are_one_until_they_are_parted(attend: AttendTrees) -> None:
    with attached(FAMILIES["qwen2"](), attend) as runner:
        model: Any = runner.model
        attention = model.model.layers[1].self_attn

        def storages() -> int:
            linears = (attention.q_proj, attention.k_proj, attention.v_proj)
            return len({each.weight.untyped_storage().data_ptr() for each in linears})

        assert storages() == 1
        layers(runner).undo()
        assert storages() == 3
        check(runner, [[1, 2, 3, 4]])
