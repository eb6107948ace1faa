"""A stack of layers computes what its layers do one by one, and never something else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from draftwood.errors import DraftwoodError
from draftwood.kernels.compiled import _command
from draftwood.protocols import Needs, TargetOutput
from draftwood.runner.attach import attach
from draftwood.runner.attention import PREFIX, Visibility, register
from draftwood.runner.cache import Plane
from draftwood.runner.cpu.layers import FusedLayers
from draftwood.runner.cpu.stack import LayerStack
from draftwood.runner.row_cache import RowCache
from draftwood.runner.runner import Runner
from draftwood.tree import tree_of
from tests.factories.tiny_llama import tiny_llama
from tests.runner.cpu.test_layers import ALLOWED, fused

pytestmark = [
    pytest.mark.skipif(_command() is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("rows_layout"),
]

TREES = [tree_of([5, 6, 7, 8], [-1, 0, 0, 1]), tree_of([9], [-1]), tree_of([4, 3], [-1, 0])]
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": 97,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
WIDTHS = (16, 32)
"""Of heads: by vectors, and with bfloat16 by tiles where the processor has them."""
PROMPTS = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 1]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of layers that stacks have computed."""
    found: list[int] = []
    run = LayerStack._compute

    def counted(self: LayerStack, *given: Any) -> bool:
        done = run(self, *given)
        if done:
            found.append(len(self._layers))
        return done

    monkeypatch.setattr(LayerStack, "_compute", counted)
    return found


def stacks_of(runner: Runner) -> list[LayerStack]:
    layers = runner._forward_pass._fused_layers
    assert isinstance(layers, FusedLayers)
    return [stack for stack, _ in layers._stacks]


def stack_of(layers: FusedLayers) -> LayerStack:
    [(stack, _)] = layers._stacks
    return stack


def of_runner(runner: Runner) -> LayerStack:
    [stack] = stacks_of(runner)
    return stack


@contextmanager
def one_by_one(stack: LayerStack) -> Iterator[None]:
    """A context in which the layers run by themselves."""
    stack.proven, before = False, stack.proven
    try:
        yield
    finally:
        stack.proven = before


def forward(runner: Runner, slots: list[int], taps: tuple[int, ...]) -> list[TargetOutput]:
    return runner.forward(slots, TREES[: len(slots)], Needs(taps=taps))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_prompts_run_in_one_call_and_need_no_mask(
    dtype: torch.dtype, width: int, calls: list[int]
) -> None:
    model: Any = tiny_llama(layers=4, head_dim=width)
    runner = attach(model.to(dtype))
    prompts = [[3, 1, 4, 1, 5, 9, 2], [6, 5]]
    slots = [runner.open(40) for _ in range(4)]
    runner.prefill(slots, [[7, 8, 9], [1], [7, 8, 9], [1]], Needs())
    calls.clear()
    found = [rows.logits[0] for rows in runner.prefill(slots[:2], prompts, Needs())]
    assert len(calls) == 1
    chains = [tree_of(prompt, range(-1, len(prompt) - 1)) for prompt in prompts]
    # With a mask, as a branch makes one necessary.
    branched = [tree_of([*p, 11], [*range(-1, len(p) - 1), 0]) for p in prompts]
    for trees in (chains, branched):
        rows = runner.forward(slots[2:], trees, Needs())
        last = [each.logits[len(p) - 1] for each, p in zip(rows, prompts, strict=True)]
        assert all(torch.equal(a, b) for a, b in zip(last, found, strict=True))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_number_of_threads_does_not_matter(
    dtype: torch.dtype, width: int, calls: list[int]
) -> None:
    model: Any = tiny_llama(layers=4, head_dim=width)
    runner = attach(model.to(dtype))
    slots = [runner.open(20) for _ in TREES]
    runner.prefill(slots, PROMPTS, Needs())
    before, found = torch.get_num_threads(), list[Tensor]()
    calls.clear()
    try:
        # Also more threads than cores, which have to wait for a core.
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            for _ in range(10):
                found.append(torch.cat([each.logits for each in forward(runner, slots, ())]))
    finally:
        torch.set_num_threads(before)
    assert len(calls) == len(found), "in one call each"
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("requests", [1, 3])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("taps", [(), (0,), (2,), (1, 3), (4,), (0, 1, 2, 3, 4)], ids=str)
def test_a_stack_equals_its_layers(
    taps: tuple[int, ...], requests: int, dtype: torch.dtype, width: int, calls: list[int]
) -> None:
    model: Any = tiny_llama(layers=4, head_dim=width)
    runner = attach(model.to(dtype))
    stack = of_runner(runner)
    assert stack.proven, "the self-test has run it"
    slots = [runner.open(20) for _ in range(requests)]
    runner.prefill(slots, PROMPTS[:requests], Needs())
    with one_by_one(stack):
        expected = forward(runner, slots, taps)
    calls.clear()
    found = forward(runner, slots, taps)
    assert calls == [4], "in one call, whatever is read"
    for own, other in zip(found, expected, strict=True):
        assert torch.equal(own.logits, other.logits)
        if taps:
            assert own.features is not None
            assert other.features is not None
            assert torch.equal(own.features, other.features)
    # What it wrote into the cache serves the next forward, also after the cache has grown.
    runner.commit(slots, [()] * requests)
    assert isinstance(runner.cache, RowCache)
    runner.cache.reserve(8, 200)
    with one_by_one(stack):
        expected = forward(runner, slots, taps)
    for own, other in zip(forward(runner, slots, taps), expected, strict=True):
        assert torch.equal(own.logits, other.logits)


@pytest.mark.parametrize("family", ["Mistral", "Qwen2", "Qwen3"])
def test_families_have_stacks(family: str, calls: list[int]) -> None:
    config = getattr(transformers, f"{family}Config")(**SIZES, num_hidden_layers=3)
    torch.manual_seed(0)
    runner = attach(getattr(transformers, f"{family}ForCausalLM")(config).eval())
    slot = runner.open(20)
    runner.prefill([slot], PROMPTS[:1], Needs())
    found = forward(runner, [slot], ())
    assert calls
    with one_by_one(of_runner(runner)):
        assert torch.equal(forward(runner, [slot], ())[0].logits, found[0].logits)


@pytest.mark.parametrize("taps", [(), (1, 4), (2, 3), (4, 5)], ids=str)
def test_a_layer_that_is_not_fused_parts_two_stacks(taps: tuple[int, ...]) -> None:
    """Inputs are read before, between and behind the layers of a stack."""
    model: Any = tiny_llama(layers=5, head_dim=16)
    model.model.layers[2].mlp.act_fn = torch.nn.GELU()
    runner = attach(model)
    stacks = stacks_of(runner)
    assert [stack.proven for stack in stacks] == [True, True]
    slots = [runner.open(20) for _ in range(2)]
    runner.prefill(slots, PROMPTS[:2], Needs())
    found = forward(runner, slots, taps)
    with one_by_one(stacks[0]), one_by_one(stacks[1]):
        expected = forward(runner, slots, taps)
    for own, other in zip(found, expected, strict=True):
        assert torch.equal(own.logits, other.logits)
        if taps:
            assert own.features is not None
            assert other.features is not None
            assert torch.equal(own.features, other.features)


def test_layers_of_several_kinds_of_attention_are_no_stack() -> None:
    """Their masks are the same only while a text is shorter than the window."""
    kinds = ["full_attention", "sliding_attention"] * 2
    config = transformers.Qwen3Config(
        **SIZES, layer_types=kinds, use_sliding_window=True, sliding_window=24, num_hidden_layers=4
    )
    torch.manual_seed(0)
    model: Any = transformers.Qwen3ForCausalLM(config)
    model.eval()
    runner = attach(model)
    assert len(runner._forward_pass._fused_layers) == 4
    assert not stacks_of(runner)
    slot = runner.open(80)
    text = [5 + i % 7 for i in range(40)]
    runner.prefill([slot], [text], Needs())
    (found,) = forward(runner, [slot], ())
    runner.detach()
    path = [*text, *(int(TREES[0].tokens[node]) for node in (0, 1, 3))]
    with torch.inference_mode():
        logits = model(torch.tensor([path])).logits[0, -1]
    torch.testing.assert_close(found.logits[3], logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("first", [0, 1])
def test_rows_apart_in_the_cache_are_read_where_they_are(
    first: int, width: int, dtype: torch.dtype, calls: list[int]
) -> None:
    model: Any = tiny_llama(layers=3, head_dim=width)
    runner = attach(model.to(dtype))
    slots = [runner.open(20) for _ in range(4)]
    runner.prefill(slots, [*PROMPTS, [4, 4, 5, 1]], Needs())
    calls.clear()
    apart = [slots[first], slots[3]]
    together = forward(runner, apart, ())
    assert calls
    calls.clear()
    with one_by_one(of_runner(runner)):
        gathered = forward(runner, apart, ())
    assert not calls
    for slot, tree, rows, others in zip(apart, TREES, together, gathered, strict=False):
        [alone] = runner.forward([slot], [tree], Needs())
        for found in (alone.logits, others.logits):
            torch.testing.assert_close(rows.logits, found, rtol=0, atol=ALLOWED[dtype])


def test_a_hook_of_a_layer_is_heard(calls: list[int]) -> None:
    """Such as one that adds a vector to what a layer returns."""
    model = tiny_llama(layers=3, head_dim=16)
    runner = attach(model)
    slot = runner.open(20)
    runner.prefill([slot], PROMPTS[:1], Needs())
    before = forward(runner, [slot], ())[0].logits
    calls.clear()
    handle = model.model.layers[1].register_forward_hook(lambda _, __, output: output + 1)
    steered = forward(runner, [slot], ())[0].logits
    assert not calls
    assert not torch.allclose(steered, before, atol=1e-3)
    handle.remove()
    assert torch.equal(forward(runner, [slot], ())[0].logits, before)
    assert calls


# --- layers called by hand ------------------------------------------------------------------------


class ByHand:
    """Two layers, a cache, and what they are called with."""

    def __init__(self) -> None:
        self.model: Any = tiny_llama(layers=2, head_dim=16)
        register("sdpa")
        self.model.set_attn_implementation(PREFIX + "sdpa")
        self.layers = fused(self.model)
        self.stack = stack_of(self.layers)
        attention: Any = self.model.model.layers[0].self_attn
        config: Any = self.model.config
        plane = Plane(
            config.num_key_value_heads, attention.head_dim, torch.float32, torch.device("cpu")
        )
        self.cache = RowCache([(plane, plane)] * 2)
        self.cache.open(40)
        generator = torch.Generator().manual_seed(2)
        self.x = torch.randn(1, 3, config.hidden_size, generator=generator)
        factors = torch.randn(2, 1, 3, attention.head_dim, generator=generator)
        self.given: dict[str, Any] = {
            "attention_mask": None,
            "position_embeddings": (factors[0], factors[1]),
            "past_key_values": self.cache,
            "draftwood_visibility": Visibility.OPEN,
        }

    def run(
        self,
        *,
        between: float = 1.0,
        layers: int = 2,
        past_the_list: bool = False,
        **changed: Any,
    ) -> Tensor:
        """The output, with what one layer returns multiplied before the next.

        ``past_the_list``: the second layer is called as the module that it is.
        """
        self.cache.begin([0], [0], [3], None)
        past = self.model.model.layers[1]
        with torch.inference_mode(), self.layers.reading((), 3):
            first, second = self.model.model.layers
            x = first(self.x, **self.given)
            if layers == 1:
                return x  # type: ignore[no-any-return]
            x = x if between == 1 else x * between
            second = past if past_the_list else second
            return second(x, **self.given | changed)  # type: ignore[no-any-return]


def test_layers_that_are_not_handed_on_are_no_stack(calls: list[int]) -> None:
    hand = ByHand()
    doubled = hand.run(between=2)
    assert hand.stack.proven is False
    assert torch.equal(hand.run(between=2), doubled)
    assert not calls
    plain = hand.run()
    assert not torch.allclose(plain, doubled, atol=1e-2)


@pytest.mark.parametrize("other", ["attention_mask", "position_embeddings"])
def test_layers_that_are_given_different_things_are_no_stack(other: str) -> None:
    hand = ByHand()
    own: dict[str, Any] = {
        "attention_mask": torch.zeros(1, 1, 3 * 2, 3),
        "position_embeddings": tuple(each.clone() for each in hand.given["position_embeddings"]),
    }
    hand.run(**{other: own[other]})
    assert hand.stack.proven is False


def test_a_change_after_it_was_proven_is_an_error_and_no_wrong_result(calls: list[int]) -> None:
    hand = ByHand()
    plain = hand.run()
    assert hand.stack.proven
    assert torch.equal(hand.run(), plain)
    assert calls == [2]
    cos, sin = hand.given["position_embeddings"]
    wrong: list[dict[str, Any]] = [
        {"between": 2},
        {"layers": 1},
        {"past_the_list": True},
        {"position_embeddings": (sin, cos)},
    ]
    for each in wrong:
        with pytest.raises(DraftwoodError, match="no longer hands what a decoder layer returns"):
            hand.run(**each)
        assert torch.equal(hand.run(), plain), "the next forward is as before"


@pytest.mark.parametrize("way", [{"layers": 1}, {"past_the_list": True}], ids=str)
def test_a_layer_that_was_not_reached_is_no_proof(way: dict[str, Any]) -> None:
    hand = ByHand()
    hand.run(**way)
    assert hand.stack.proven is None
    hand.run()
    assert hand.stack.proven


def test_an_exception_on_the_way_is_not_hidden() -> None:
    hand = ByHand()
    hand.run()
    hand.cache.begin([0], [0], [3], None)

    def interrupted() -> None:
        with torch.inference_mode(), hand.layers.reading((), 3):
            hand.model.model.layers[0](hand.x, **hand.given)
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
