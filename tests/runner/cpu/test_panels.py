"""Products with weights in panels equal float64's, whatever the rows beside a row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from draftwood.protocols import Needs
from draftwood.runner import attach as attach_module
from draftwood.runner.attach import attach
from draftwood.runner.cpu import layouts, packing
from draftwood.runner.cpu.layers import FusedLayers
from draftwood.runner.cpu.layouts import PANELS, ROWS, TRANSPOSED, WeightLayout
from draftwood.runner.cpu.packing import PackedLinear, pack
from draftwood.runner.cpu.panels import (
    PanelsLinear,
    fits,
    in_panels,
    out_of_panels,
    panel_width,
)
from draftwood.tree import tree_of
from tests.factories.layout_choices import IN_PANELS, IN_ROWS
from tests.factories.tiny_llama import tiny_llama
from tests.runner.cpu.test_layers import ALLOWED, fused, given, made
from tests.runner.cpu.test_packing import freed

pytestmark = pytest.mark.skipif(not panel_width(), reason="no panels for this processor")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("inputs", [1, 7, 100, 127, 128, 129, 576, 2050])
@pytest.mark.parametrize("outputs", [32, 192])
@pytest.mark.parametrize("biased", [False, True])
def test_every_row_is_that_of_a_wider_product(inputs: int, outputs: int, biased: bool) -> None:
    weight, x = drawn(outputs, inputs), drawn(40, inputs, seed=2)
    bias = drawn(outputs, seed=1) if biased else None
    product = PanelsLinear(in_panels(weight))
    whole = product(x, bias)
    added = None if bias is None else bias.double()
    exact = linear(x.double(), weight.double(), added)
    size = linear(x.double().abs(), weight.double().abs(), None if added is None else added.abs())
    assert ((whole.double() - exact).abs() <= 1e-6 * size).all()
    for first, end in [*((0, n) for n in range(1, 40)), (3, 4), (5, 12), (7, 7)]:
        assert torch.equal(product(x[first:end], bias), whole[first:end])


def test_the_number_of_threads_does_not_matter() -> None:
    product, x, before = PanelsLinear(in_panels(drawn(160, 70))), drawn(30, 70), None
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            found = product(x, None)
            assert before is None or torch.equal(found, before)
            before = found
    finally:
        torch.set_num_threads(threads)


def test_a_weight_comes_back_bit_for_bit() -> None:
    for outputs in (32, 96):
        weight = drawn(outputs, 5)
        weight[0, :3] = torch.tensor([torch.nan, torch.inf, -0.0])
        found = out_of_panels(in_panels(weight))
        assert found.is_contiguous()
        assert torch.equal(found.view(torch.int32), weight.view(torch.int32))
    assert fits(weight)
    assert not fits(drawn(33, 4))
    assert not fits(weight.bfloat16())


def test_what_the_kernel_cannot_read_is_pytorchs() -> None:
    weight, x = drawn(32, 6), drawn(2, 6)
    product = PanelsLinear(in_panels(weight))

    class Noted(Tensor):
        pass

    found = product(x.as_subclass(Noted), None)
    assert type(found) is Noted
    torch.testing.assert_close(found.as_subclass(Tensor), x @ weight.T)
    with pytest.raises(RuntimeError, match="dtype"):
        product(x.double(), None)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_fused_layer_equals_the_layer(family: str) -> None:
    model = made(family)
    x, further = given(model, 3)
    with torch.inference_mode():
        expected = [layer(x, **further) for layer in model.model.layers]
        layers = fused(model, IN_PANELS)
        assert len(layers) == len(expected)
        assert freed(model.model.layers[0].mlp.down_proj)
        with layers:
            found = [layer(x, **further) for layer in model.model.layers]
        assert freed(model.model.layers[0].mlp.down_proj), "nothing has read the weight"
    for one, other in zip(found, expected, strict=True):
        change = (other - x).abs().max()
        assert ((one - other).abs() <= ALLOWED[torch.float32] * change).all()


def test_a_weight_that_others_hold_stays_as_it_is_stored() -> None:
    """Then the gate lies in rows and the other input of the activation in panels."""
    model = made(inner=64)
    layer = model.model.layers[0]
    held = layer.mlp.gate_proj.weight
    x, further = given(model)
    with torch.inference_mode():
        expected = layer(x, **further)
        layers = fused(model, IN_PANELS)
        assert [packed(layer.mlp.gate_proj).layout, packed(layer.mlp.up_proj).layout] == [
            ROWS,
            PANELS,
        ]
        with layers:
            found = layer(x, **further)
    change = (expected - x).abs().max()
    assert ((found - expected).abs() <= ALLOWED[torch.float32] * change).all()
    with torch.no_grad():
        held.mul_(2)
    with torch.inference_mode(), layers:
        assert not torch.equal(layer(x, **further), found), "a change in place is seen"


def test_weights_that_were_read_are_put_into_panels_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attach_module, "cached_layouts", lambda w, **_: [IN_PANELS] * len(w))
    model: Any = tiny_llama(layers=3, intermediate_size=64)
    runner = attach(model, self_test=False)
    layers = runner._forward_pass._fused_layers
    assert isinstance(layers, FusedLayers)
    up, tree = model.model.layers[1].mlp.up_proj, tree_of([5, 6], [-1, 0])
    slot = runner.open(60)
    runner.prefill([slot], [[3, 1, 4]], Needs())
    found = [runner.forward([slot], [tree], Needs())[0].logits]
    assert layers.__dict__["direct"]
    sum(parameter.numel() for parameter in model.parameters())
    assert not freed(up)
    found.append(runner.forward([slot], [tree], Needs())[0].logits)
    assert not layers.__dict__["direct"]
    runner.release(slot)
    slot = runner.open(60)
    assert freed(up)
    runner.prefill([slot], [[3, 1, 4]], Needs())
    found.append(runner.forward([slot], [tree], Needs())[0].logits)
    assert layers.__dict__["direct"]
    assert torch.equal(found[0], found[2])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


class Tied(nn.Module):
    """A head whose weight is an embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 5)
        self.head = nn.Linear(5, 96, bias=False)
        self.head.weight = self.embedding.weight


def tied(model: nn.Module) -> PackedLinear:
    [found] = pack(model, lambda weights: [IN_PANELS] * len(weights))
    return found


def test_an_embeddings_weight_is_copied() -> None:
    model, x = Tied().requires_grad_(False), drawn(3, 5)
    expected = model.head(x)
    head = tied(model)
    assert head.layout is PANELS
    assert head.copied
    assert not freed(model.head)
    assert head.packed is not None
    with torch.inference_mode():
        torch.testing.assert_close(model.head(x), expected)
        head.packed.mul_(3.0)
        torch.testing.assert_close(model.head(x), 3.0 * expected, msg="the copy is used")
    head.undo()
    assert model.head.weight is model.embedding.weight
    torch.testing.assert_close(model.head(x), expected)


@torch.no_grad()
def resized(model: Tied) -> None:
    weight = nn.Parameter(2.0 * model.embedding.weight[:90])
    model.embedding.weight = model.head.weight = weight
    model.head.out_features = 90


@pytest.mark.parametrize(
    "change",
    [
        torch.no_grad()(lambda model: model.embedding.weight.mul_(2.0)),
        lambda model: model.load_state_dict({k: 2.0 * v for k, v in model.state_dict().items()}),
        lambda model: setattr(model.embedding.weight, "data", 2.0 * model.embedding.weight.data),
        lambda model: setattr(model.head, "weight", nn.Parameter(2.0 * model.head.weight.detach())),
        resized,
    ],
    ids=["in place", "loaded", "data", "untied", "resized"],
)
def test_a_change_of_the_embedding_is_noticed(change: Callable[[Tied], object]) -> None:
    model, x = Tied(), drawn(3, 5)
    head, expected = tied(model), model.head(x).detach()
    change(model)
    for _ in range(2):
        with torch.inference_mode():
            found = model.head(x)
        torch.testing.assert_close(found, 2.0 * expected[:, : found.shape[1]])
        head.refresh()


def test_what_is_only_in_the_same_memory_is_not_copied() -> None:
    model, x = Tied(), drawn(3, 5)
    model.head.weight = nn.Parameter(model.embedding.weight.data)
    head = tied(model)
    assert head.layout is ROWS
    with torch.no_grad():
        model.embedding.weight.mul_(2.0)
    with torch.inference_mode():
        torch.testing.assert_close(model.head(x), x @ model.embedding.weight.T)


def test_an_adapted_embeddings_weight_is_not_copied() -> None:
    """Adapters merge into it through ``.data``, which cannot be noticed."""
    model, x = Tied(), drawn(3, 5)
    head = tied(nn.ModuleDict({"base_layer": model.embedding, "head": model.head}))
    assert head.layout is ROWS
    model.head.weight.data += 1.0
    with torch.inference_mode():
        torch.testing.assert_close(model.head(x), x @ model.head.weight.T)


def test_a_large_embeddings_weight_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Tied().requires_grad_(False), drawn(3, 5)
    expected = model.head(x)
    monkeypatch.setattr(packing, "_COPIED", 96 * 5 * 4 - 1)
    head = tied(model)
    assert head.layout is ROWS
    assert not head.copied
    with torch.inference_mode():
        torch.testing.assert_close(model.head(x), expected)


def test_a_layer_with_an_embeddings_weight_is_not_fused() -> None:
    """Its kernels would not see that the weight it was copied from has changed."""
    model = made(inner=64)
    first = model.model.layers[0]
    model.other = nn.Embedding(64, first.mlp.up_proj.in_features)
    model.other.weight = first.mlp.up_proj.weight
    assert len(fused(model, IN_PANELS)) == len(model.model.layers) - 1
    assert packed(first.mlp.up_proj).copied


@pytest.mark.parametrize("best", [ROWS, PANELS])
def test_small_weights_have_the_faster_layout_of_the_kernels(
    best: WeightLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ratios(linears: Any, sample: Any, sizes: Any) -> Any:
        """Transposed weights are the fastest."""
        took = dict.fromkeys(linears, 0.9) | {TRANSPOSED: 0.1, best: 0.5}
        shapes = {(w.shape, w.dtype, b is None) for w, b in sample}
        return {shape: {each: [s] * len(sizes) for each, s in took.items()} for shape in shapes}

    monkeypatch.setattr(layouts, "_ratios", ratios)
    found = layouts.fastest_layouts([(drawn(*shape), None) for shape in [(64, 256), (40, 256)]])
    # 40 outputs are no whole panels.
    assert [choice and choice.layout for choice in found] == [best, ROWS]


def packed(module: nn.Module) -> PackedLinear:
    forward = module.__dict__["forward"]
    assert isinstance(forward, PackedLinear)
    return forward


def test_a_model_decodes_as_with_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, list[Tensor]] = {}
    for name, choice in (("rows", IN_ROWS), ("panels", IN_PANELS)):
        monkeypatch.setattr(
            attach_module, "cached_layouts", lambda w, choice=choice, **_: [choice] * len(w)
        )
        model: Any = tiny_llama(layers=3, intermediate_size=64)
        runner = attach(model)
        slots = [runner.open(60), runner.open(60)]
        first = runner.prefill(slots, [[3, 1, 4, 1, 5], [9, 2]], Needs())
        trees = [tree_of([5, 6, 7, 8], [-1, 0, 0, 1]), tree_of([9], [-1])]
        rows = runner.forward(slots, trees, Needs())
        found[name] = [each.logits for each in (*first, *rows)]
        layers = runner._forward_pass._fused_layers
        assert isinstance(layers, FusedLayers)
        assert layers.direct
        runner.detach()
        assert all(type(each._parameters) is dict for each in model.modules())
    for one, other in zip(found["rows"], found["panels"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
