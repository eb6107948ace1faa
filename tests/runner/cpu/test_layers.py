"""Fused layers compute what the layers do, and step aside where they would not."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP

from draftwood import Engine, Request
from draftwood.kernels.compiled import _command
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.attention import PREFIX, Visibility, register
from draftwood.runner.cpu.layers import MOST, FusedLayers, fuse_layers
from draftwood.runner.cpu.layouts import TRANSPOSED, LayoutChoice
from draftwood.runner.cpu.norms import fuse_norms
from draftwood.runner.cpu.packing import pack
from draftwood.runner.prefill import CHUNK
from draftwood.runner.runner import Runner
from tests.factories.layout_choices import IN_ROWS
from tests.factories.model_families import FAMILIES
from tests.factories.tiny_llama import tiny_llama

pytestmark = pytest.mark.skipif(_command() is None, reason="no C++ compiler")

FUSED = ["llama", "mistral", "mistral_sliding", "qwen2", "qwen3"]
ALLOWED = {torch.float32: 2e-5, torch.bfloat16: 0.06}


class Cache:
    """Keys and values of earlier tokens, before those of a forward."""

    def __init__(self, key: Tensor, value: Tensor) -> None:
        self.key, self.value = key, value

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return torch.cat([self.key, key], 2), torch.cat([self.value, value], 2)


def made(
    family: str = "llama", dtype: torch.dtype = torch.float32, inner: int | None = None
) -> Any:
    """A model of random weights, large enough to make every part of a layer count.

    ``inner``: width of a Llama's MLP.
    """
    torch.manual_seed(0)
    model: Any = tiny_llama(intermediate_size=inner) if inner else FAMILIES[family]()
    model.to(dtype)
    register("sdpa")
    model.set_attn_implementation(PREFIX + "sdpa")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)
    return model


def fused(model: nn.Module, choice: LayoutChoice | None = None) -> FusedLayers:
    pack(model, lambda weights: [choice or IN_ROWS] * len(weights))
    fuse_norms(model)
    return fuse_layers(model)


def given(model: Any, b: int = 2, n: int = 5, seen: int = 9) -> tuple[Tensor, dict[str, Any]]:
    """Hidden states, and what else a layer gets for trees behind ``seen`` tokens."""
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(model.dtype)

    attention, config = model.model.layers[0].self_attn, model.config
    width, heads = attention.head_dim, config.num_key_value_heads
    group = config.num_attention_heads // heads
    hidden = torch.rand((b, 1, n, seen + n), generator=generator) < 0.4
    hidden[..., 0] = False
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf).repeat(1, 1, group, 1)
    return drawn(b, n, config.hidden_size), {
        "attention_mask": mask.to(model.dtype),
        "position_embeddings": (drawn(b, n, width), drawn(b, n, width)),
        "past_key_values": Cache(drawn(b, heads, seen, width), drawn(b, heads, seen, width)),
        "draftwood_visibility": Visibility.TREE,
    }


def runs(layer: Any) -> bool:
    """Whether a kernel runs when the layer is called."""
    return "forward" in layer.__dict__


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("family", FUSED)
@pytest.mark.parametrize("b", [1, 3])
def test_a_fused_layer_equals_the_layer(family: str, dtype: torch.dtype, b: int) -> None:
    model = made(family, dtype)
    x, further = given(model, b)
    with torch.inference_mode():
        expected = [layer(x, **further) for layer in model.model.layers]
        layers = fused(model)
        assert len(layers) == len(expected) == 2
        with layers:
            assert all(map(runs, model.model.layers))
            found = [layer(x, **further) for layer in model.model.layers]
            first = tuple(each[:1] for each in further["position_embeddings"])
            repeated = tuple(each.expand(b, -1, -1).contiguous() for each in first)
            alike = [
                model.model.layers[0](x, **further | {"position_embeddings": factors})
                for factors in (first, repeated)
            ]
    assert not any(map(runs, model.model.layers))
    assert torch.equal(*alike), "one row of factors for all sequences"
    for one, other in zip(found, expected, strict=True):
        change = (other - x).abs().max()
        assert change > 0.5
        assert ((one - other).abs() <= ALLOWED[dtype] * change).all()


@pytest.mark.parametrize("dtype", ALLOWED)
def test_a_row_does_not_depend_on_the_others_nor_on_threads(dtype: torch.dtype) -> None:
    model = made("qwen3", dtype)
    x, further = given(model, 1, 7)
    layers, layer = fused(model), model.model.layers[0]
    before, whole = torch.get_num_threads(), list[Tensor]()
    first = (each[:, :1] for each in further["position_embeddings"])
    further["position_embeddings"] = tuple(each.expand(1, 7, -1).contiguous() for each in first)
    visible = further | {"draftwood_visibility": Visibility.OPEN, "attention_mask": None}
    same = x[:, :1].expand(1, 7, -1).contiguous()
    with torch.inference_mode(), layers:
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                whole.append(layer(x, **further))
        finally:
            torch.set_num_threads(before)
        rows = layer(same, **visible)
    assert torch.equal(whole[0], whole[1])
    assert torch.equal(whole[0], whole[2])
    assert all(torch.equal(rows[:, i], rows[:, 0]) for i in range(7))


class _DoubledMLP(LlamaMLP):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)  # type: ignore[no-any-return, no-untyped-call]


CHANGES: dict[str, Callable[[Any], object]] = {
    "hook": lambda layer: layer.mlp.up_proj.register_forward_hook(lambda *_: None),
    "hook before": lambda layer: layer.self_attn.register_forward_pre_hook(lambda *_: None),
    "replaced child": lambda layer: setattr(layer.mlp, "up_proj", nn.Linear(32, 48, bias=False)),
    "replaced weight": lambda layer: setattr(
        layer.mlp.up_proj, "weight", nn.Parameter(layer.mlp.up_proj.weight.detach() * 2)
    ),
    "moved weight": lambda layer: setattr(
        layer.mlp.up_proj.weight, "data", layer.mlp.up_proj.weight.data * 2
    ),
    "new bias": lambda layer: setattr(layer.mlp.up_proj, "bias", nn.Parameter(torch.ones(48))),
    "moved norm": lambda layer: setattr(
        layer.input_layernorm.weight, "data", layer.input_layernorm.weight.data * 2
    ),
    "undone": lambda layer: layer.mlp.up_proj.__dict__["forward"].undo(),
    "forward of a part": lambda layer: setattr(
        layer.mlp, "forward", lambda x: 2 * type(layer.mlp).forward(layer.mlp, x)
    ),
    "forward of the activation": lambda layer: setattr(layer.mlp.act_fn, "forward", torch.relu),
    "class of a part": lambda layer: setattr(layer.mlp, "__class__", _DoubledMLP),
    "forward": lambda layer: setattr(layer, "forward", type(layer).forward.__get__(layer)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_whose_parts_have_changed_runs_itself(change: str) -> None:
    model = made()
    layers, layer = fused(model), model.model.layers[0]
    CHANGES[change](layer)
    x, further = given(model)
    with torch.inference_mode():
        plain = layer(x, **further)
        with layers:
            assert torch.equal(layer(x, **further), plain)
            assert runs(model.model.layers[1])


def test_hooks_for_all_modules_are_called() -> None:
    model = made()
    layers, called = fused(model), list[str]()
    x, further = given(model)
    handle = register_module_forward_hook(lambda module, *_: called.append(type(module).__name__))
    try:
        with torch.inference_mode(), layers:
            model.model.layers[0](x, **further)
    finally:
        handle.remove()
    assert {"LlamaAttention", "LlamaMLP", "SiLUActivation"} <= set(called)
    with layers:
        assert runs(model.model.layers[0])


def test_layers_stay_fused_after_hidden_states_were_asked_for() -> None:
    model = made()
    layers = fused(model)
    with torch.inference_mode():
        model(torch.tensor([[1, 2]]), output_hidden_states=True)
    assert model.model.layers[0].self_attn._forward_hooks, "transformers leaves hooks"
    with layers:
        assert all(map(runs, model.model.layers))
    model.model.layers[0].self_attn.register_forward_hook(lambda *_: None)
    with layers:
        assert [*map(runs, model.model.layers)] == [False, True]


def test_a_weight_that_is_changed_in_place_is_used() -> None:
    model = made()
    layers, layer = fused(model), model.model.layers[0]
    x, further = given(model)
    with torch.inference_mode():
        with layers:
            before = layer(x, **further)
        layer.mlp.up_proj.weight.mul_(2)
        expected = layer(x, **further)
        with layers:
            assert runs(layer)
            found = layer(x, **further)
    assert not torch.allclose(found, before, atol=1e-2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


OTHERS: list[dict[str, Any]] = [
    {"draftwood_visibility": Visibility.CHUNK},
    {"draftwood_visibility": Visibility.OPEN, "attention_mask": None, "past_key_values": None},
    {"position_embeddings": None},
]


@pytest.mark.parametrize("other", OTHERS)
def test_masked_chunks_and_calls_without_a_cache_or_factors_are_the_layers_own(
    other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made()
    layers, layer = fused(model), model.model.layers[0]
    x, further = given(model, seen=0)
    monkeypatch.setattr(type(layer), "forward", lambda *_, **__: "its own")
    with torch.inference_mode(), layers:
        assert layer(x, **further) != "its own"
        assert layer(x, **further | other) == "its own"


def test_many_rows_are_the_layers_own() -> None:
    model = made()
    layers, layer = fused(model), model.model.layers[0]
    x, further = given(model, 1, MOST[torch.float32] + 1)
    with torch.inference_mode():
        plain = layer(x, **further)
        with layers:
            assert torch.equal(layer(x, **further), plain)


@pytest.mark.usefixtures("rows_layout")
@pytest.mark.parametrize(
    ("dtype", "packing", "large"),
    [(torch.float32, True, False), (torch.bfloat16, True, True), (torch.float32, False, True)],
)
def test_a_prompt_begins_with_a_large_forward_unless_layers_are_fused_for_a_usual_one(
    dtype: torch.dtype, packing: bool, large: bool
) -> None:
    model: Any = FAMILIES["llama"]().to(dtype)
    runner = attach(model, packing=packing, self_test=False)
    seen: list[int] = []
    model.model.register_forward_pre_hook(
        lambda module, given, named: seen.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    prompt = [1] * (CHUNK + 3)
    runner.prefill([runner.open(len(prompt))], [prompt], Needs())
    assert seen == ([len(prompt)] if large else [CHUNK, 3])
    seen.clear()
    runner.prefill([runner.open(len(prompt)) for _ in range(2)], [prompt] * 2, Needs())
    assert seen == [2 * len(prompt)], "so many rows are not fused in any case"


def test_gradients_flow_through_the_layer_itself() -> None:
    model = made()
    layers, layer = fused(model), model.model.layers[0]
    x, further = given(model)
    with layers:
        layer(x, **further).sum().backward()
    assert layer.mlp.up_proj.weight.grad is not None


class _Doubled(nn.SiLU):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


MODELS: dict[str, Callable[[Any], object]] = {
    "activation": lambda layer: setattr(layer.mlp, "act_fn", nn.GELU()),
    "derived activation": lambda layer: setattr(layer.mlp, "act_fn", _Doubled()),
    "forward of a part": lambda layer: setattr(layer.self_attn, "forward", layer.self_attn.forward),
    "further part": lambda layer: setattr(layer.mlp, "norm", nn.Identity()),
    "parameter": lambda layer: setattr(layer.mlp, "scale", nn.Parameter(torch.ones(1))),
}


@pytest.mark.parametrize("kind", MODELS)
def test_layers_of_other_parts_are_left_alone(kind: str) -> None:
    model = made()
    MODELS[kind](model.model.layers[0])
    layers = fused(model)
    assert len(layers) == 1
    with layers:
        assert not runs(model.model.layers[0])


def test_a_layer_of_these_parts_that_computes_something_else_is_left_alone() -> None:
    class Halved(LlamaDecoderLayer):  # type: ignore[no-untyped-call]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return 0.5 * super().forward(*args, **kwargs)

    model = made()
    model.model.layers[0].__class__ = Halved
    layers = fused(model)
    assert len(layers) == 1
    with layers:
        assert not runs(model.model.layers[0])


def test_another_layout_is_not_fused() -> None:
    assert len(fused(made(), LayoutChoice(TRANSPOSED))) == 0
    assert len(fused(made("gemma3"))) == 0
    model = made()
    pack(model, lambda weights: [IN_ROWS] * len(weights))
    assert len(fuse_layers(model)) == 0, "the norms are not patched"


def replaced(model: Any) -> None:
    """Give every parameter new memory, with other values."""
    own = {name: 1.5 * value for name, value in model.state_dict().items()}
    model.load_state_dict(own, assign=True)


def moved(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data = 1.5 * parameter.data


def biased(model: Any) -> None:
    for layer in model.model.layers:
        layer.mlp.up_proj.bias = nn.Parameter(layer.mlp.up_proj.weight[:, 0].detach().clone())


def to_attach(dtype: torch.dtype = torch.float32) -> Any:
    model = made(dtype=dtype)
    model.set_attn_implementation("sdpa")
    return model


def decoded(runner: Runner) -> tuple[tuple[int, ...], FusedLayers]:
    """Tokens, and the layers, which tell whether all of them were run by kernels."""
    [done] = Engine(runner, "ar").generate([Request([5, 6, 7, 5, 6], max_new_tokens=12)])
    layers = runner._forward_pass._fused_layers
    assert isinstance(layers, FusedLayers)
    return done.checked().tokens, layers


@pytest.mark.usefixtures("rows_layout")
@pytest.mark.parametrize("dtype", MOST)
@pytest.mark.parametrize("change", [replaced, moved, biased])
def test_layers_are_fused_again_after_their_weights_were_replaced(
    change: Callable[[Any], None], dtype: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    model: Any = to_attach(dtype)
    runner = attach(model)
    before, layers = decoded(runner)
    assert layers.direct
    change(model)
    with caplog.at_level(logging.INFO, "draftwood.runner.cpu.layers"):
        after, layers = decoded(runner)
        assert layers.direct
        assert decoded(runner)[0] == after
    assert caplog.messages == ["2 layers are fused again, as their weights were replaced"]
    runner.detach()
    assert decoded(attach(model))[0] == after != before


@pytest.mark.usefixtures("rows_layout")
def test_a_layer_with_a_hook_is_fused_again_when_the_hook_has_gone() -> None:
    model = to_attach()
    runner = attach(model)
    expected, _ = decoded(runner)
    called = list[int]()
    hook = model.model.layers[0].mlp.register_forward_hook(lambda *_: called.append(1))
    moved(model)
    moved(model.model.layers[1])
    with_hook, layers = decoded(runner)
    assert called
    assert not layers.direct
    hook.remove()
    called.clear()
    found, layers = decoded(runner)
    assert layers.direct
    assert not called
    assert found == with_hook != expected


@pytest.mark.usefixtures("rows_layout")
def test_weights_that_no_kernel_reads_are_the_layers_own(caplog: pytest.LogCaptureFixture) -> None:
    model = to_attach()
    runner = attach(model)
    layer = model.model.layers[1]
    for weight in (layer.mlp.up_proj.weight, layer.input_layernorm.weight):
        weight.data = torch.ones(()).expand(weight.shape)
    with caplog.at_level(logging.INFO, "draftwood.runner.cpu.layers"):
        found, layers = decoded(runner)
        assert not layers.direct
        decoded(runner)
    said = "1 layers run by themselves: no kernel can read their new weights"
    assert caplog.messages == [said], "once"
    for weight in (layer.mlp.up_proj.weight, layer.input_layernorm.weight):
        weight.data = weight.data.contiguous()
    again, layers = decoded(runner)
    assert layers.direct
    assert again == found
