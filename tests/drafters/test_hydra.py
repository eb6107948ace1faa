"""Hydra heads: their equations, their checkpoints, and decoding with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.drafters.hydra.checkpoint import load_hydra
from draftwood.drafters.hydra.drafter import Hydra, HydraDrafter
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT
from tests.drafters.decoded_text import DecodedText
from tests.drafters.expand_and_check import drive
from tests.drafters.small_target import check_law, check_tokens, model_check, small_target
from tests.factories.hydra_heads import HEADS, LAYERS, random_tensors, raw_config, saved
from tests.factories.markov_target import MarkovTarget
from tests.factories.tiny_llama import VOCAB, tiny_llama

ARCHS = ["prefix-mlp", "mlp"]
SIZE, THETA, EPS = 8, 10000.0, 1e-6


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=2), chunk=16, self_test=False)


def norm(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rope(rows: torch.Tensor) -> torch.Tensor:
    """Rotate ``[n, heads, d]``, halves against each other, by their positions."""
    frequencies = THETA ** (-torch.arange(0, SIZE, 2).float() / SIZE)
    angles = torch.arange(len(rows))[:, None].float() * frequencies
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = rows.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def prefixed(tensors: dict[str, torch.Tensor], states: torch.Tensor) -> torch.Tensor:
    """The prefix layer's output at the last of some states ``[n, H]``."""
    start = "prefix_embeding_layer."
    own = {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
    own = {n.removeprefix("layers.0.").removesuffix(".weight"): t for n, t in own.items()}
    rows = norm(states, own["input_layernorm"])
    q, k, v = ((rows @ own[f"self_attn.{n}_proj"].T).view(len(rows), -1, SIZE) for n in "qkv")
    q, k = rope(q), rope(k)
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    shares = (torch.einsum("hd,nhd->hn", q[-1], k) / SIZE**0.5).softmax(-1)
    x = states[-1] + torch.einsum("hn,nhd->hd", shares, v).flatten() @ own["self_attn.o_proj"].T
    y = norm(x, own["post_attention_layernorm"])
    gate = functional.silu(y @ own["mlp.gate_proj"].T) * (y @ own["mlp.up_proj"].T)
    return norm(x + gate @ own["mlp.down_proj"].T, own["norm"])


def literal(
    tensors: dict[str, torch.Tensor], arch: str, states: torch.Tensor, embedded: torch.Tensor
) -> torch.Tensor:
    """The logits ``[V]`` after a path, of whose tokens ``embedded`` ``[i + 1, H]`` are given."""
    step, first, tail = (2, 1, ".1") if arch == "prefix-mlp" else (1, 0, "")
    seen = prefixed(tensors, states) if arch == "prefix-mlp" else states[-1]
    v, head = torch.cat([seen, embedded.flatten()]), len(embedded) - 1

    def linear(name: str, rows: torch.Tensor) -> torch.Tensor:
        return rows @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0.0)

    name = f"hydra_mlp.{head}"
    y = linear(f"{name}.{first}.res_connection", v)
    y = y + functional.silu(linear(f"{name}.{first}.linear", v))
    for layer in range(1, LAYERS):
        y = y + functional.silu(linear(f"{name}.{first + step * layer}.linear", y))
    return linear(f"hydra_lm_head.{head}{tail}", y)


class HeadText(DecodedText):
    """A request of a target that decodes, and the equations for every path from scratch."""

    def __init__(
        self, target: Runner, drafter: HydraDrafter, arch: str, slot: int, prompt: list[int]
    ) -> None:
        self.arch, self.tensors = arch, random_tensors(target.info, arch)
        super().__init__(target, drafter, slot, prompt)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        model: Any = self.target.model
        states = model.model(input_ids=torch.tensor([self.tokens[:-1]])).last_hidden_state[0]
        path = torch.tensor([self.tokens[-1], *self.path(node)])
        return literal(self.tensors, self.arch, states, model.get_input_embeddings()(path))


def drafter_of(directory: Path, target: Runner, arch: str = "prefix-mlp") -> HydraDrafter:
    name = saved(directory, raw_config(arch), random_tensors(target.info, arch))
    drafter = Hydra(name, "target").build(ModelHost(target))
    assert isinstance(drafter, HydraDrafter)
    return drafter


@pytest.mark.parametrize("arch", ARCHS)
def test_every_answer_is_that_of_the_equations(target: Runner, tmp_path: Path, arch: str) -> None:
    drafter = drafter_of(tmp_path, target, arch)
    assert drafter.needs == Needs(taps=(2,))
    rng = np.random.default_rng(0)
    texts = [
        HeadText(target, drafter, arch, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((4, 9), (0, 90), (2, 1))
    ]
    assert drive(drafter, texts, rng, 5, VOCAB) == drafter.forwards


@pytest.mark.parametrize("wrong", ["state", "order", "positions"])
def test_the_comparison_sees_what_is_wrong(
    target: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, "prefix-mlp", 0, [1, 2, 3])
    text.builder.add_chain([11], "context")
    text.ask([ROOT, 1], 3)
    text.finish(bonus=5)
    text.builder.add_chain([12], "context")
    whole = drafter._heads.forward
    if wrong == "state":
        drafter._texts[0].state = torch.ones(32)
    elif wrong == "order":
        monkeypatch.setattr(
            drafter._heads, "forward", lambda depth, states, ids: whole(depth, states, ids.flip(1))
        )
    else:
        assert drafter._heads.prefix is not None
        monkeypatch.setattr(drafter._heads.prefix.rotary_emb, "attention_scaling", 0.5)
    with pytest.raises(AssertionError):
        text.ask([1], 5)


def test_children_depend_on_the_path(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, "prefix-mlp", 0, [1, 2, 3])
    nodes = [text.builder.add(ROOT, token, "context") for token in (11, 12, 13)]
    found = text.ask([*nodes, nodes[0]], 4)
    assert len({tuple(row) for row in found.tokens.tolist()}) == 3
    assert drafter.forwards == 1, "one batch a depth"
    text.ask([nodes[1]], 4)
    assert drafter.forwards == 1, "known nodes are not computed again"


def test_nodes_below_the_last_head_have_no_children(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, "prefix-mlp", 0, [1, 2, 3])
    text.builder.add_chain([11, 12, 13, 14], "context")
    [answer] = drafter.expand([0], [text.query([HEADS, ROOT, HEADS - 1], 2)])
    assert (answer.tokens[0] == -1).all()
    for place, node in ((1, ROOT), (2, HEADS - 1)):
        assert answer.tokens[place].tolist() == text.logits(node).topk(2).indices.tolist()


def test_released_requests_are_forgotten(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, "prefix-mlp", 0, [1, 2, 3])
    drafter.release(0)
    with pytest.raises(KeyError):
        drafter.expand([0], [text.query([ROOT], 2)])
    drafter.release(0)


def test_bytes_of_a_position(target: Runner, tmp_path: Path) -> None:
    # K and V, heads; buffers are up to a quarter longer.
    assert drafter_of(tmp_path / "a", target).token_bytes == 1.25 * 2 * 2 * SIZE * 4
    assert drafter_of(tmp_path / "b", target, "mlp").token_bytes == 0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hydra_mlp.0.1.linear.weight": torch.zeros(8, 8)}, r"0.1.linear.weight is \[8, 8\]"),
        ({"hydra_mlp.0.2.linear.weight": torch.zeros(2, 2)}, "has hydra_mlp.0.2.linear.weight"),
        ({"hydra_mlp.1.3.res_connection.bias": torch.zeros(2)}, "has hydra_mlp.1.3.res_conn"),
        ({"hydra_lm_head.4.1.weight": torch.zeros(2, 2)}, "has hydra_lm_head.4.1.weight"),
        ({"prefix_embeding_layer.norm.weight": torch.zeros(4)}, r"norm.weight is \[4\]"),
        ({"hydra_lm_head.1.1.weight": torch.zeros(VOCAB, 32).char()}, "not quantised"),
    ],
)
def test_other_tensors_are_refused(
    target: Runner, tmp_path: Path, change: dict[str, torch.Tensor], complaint: str
) -> None:
    name = saved(tmp_path, raw_config(), random_tensors(target.info) | change)
    with pytest.raises(DraftwoodError, match=complaint):
        load_hydra(name, target, torch.float32)


def test_incomplete_heads_are_refused(target: Runner, tmp_path: Path) -> None:
    tensors = random_tensors(target.info)
    del tensors["hydra_mlp.2.5.linear.weight"], tensors["hydra_lm_head.3.1.bias"]
    with pytest.raises(DraftwoodError, match=r"lacks hydra_mlp\.2\.5\.linear\.weight and has no"):
        load_hydra(saved(tmp_path, raw_config(), tensors), target, torch.float32)


def test_outputs_without_biases(target: Runner, tmp_path: Path) -> None:
    tensors = random_tensors(target.info, "mlp")
    given = {n: t for n, t in tensors.items() if not n.startswith("hydra_lm") or "bias" not in n}
    heads = load_hydra(saved(tmp_path, raw_config("mlp"), given), target, torch.float32)
    states, ids = torch.randn(1, 32), torch.tensor([[4, 9]])
    with torch.no_grad():
        expected = literal(given, "mlp", states, target.embedding()(ids[0]))
        torch.testing.assert_close(heads(1, states, ids)[0], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"arch": "cross-attn"}, "hydra_head_arch is 'cross-attn', a variant that is not read"),
        ({"arch": "eagle-attn"}, "hydra_head_arch is 'eagle-attn'"),
        ({"grounded_heads": False}, "grounded_heads is False"),
        ({"hidden_state_offset": 1}, "hidden_state_offset is 1"),
        ({"hydra_num_heads": 0}, "hydra_num_heads is 0"),
        ({"hydra_num_layers": None}, "hydra_num_layers is None"),
    ],
)
def test_other_configurations_are_refused(
    target: Runner, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    name = saved(tmp_path, raw_config(**changes), random_tensors(target.info))
    with pytest.raises(DraftwoodError, match=complaint):
        load_hydra(name, target, torch.float32)


def test_a_target_without_sizes_takes_no_prefix_layer(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="no configuration that names them"):
        load_hydra(saved(tmp_path, raw_config(), {}), MarkovTarget(), torch.float32)


def test_a_pickle_of_other_things_is_refused(target: Runner, tmp_path: Path) -> None:
    name = saved(tmp_path, raw_config(), {"a": Path("x")})  # type: ignore[dict-item]
    with pytest.raises(DraftwoodError, match=r"cannot read .* as plain tensors"):
        load_hydra(name, target, torch.float32)


def test_a_head_option_finds_them(target: Runner, tmp_path: Path) -> None:
    name = saved(tmp_path, raw_config(), {})
    assert kind_of("head", name) == "hydra"
    for text in ("talon", "eagle3", "auto", "goose-eagle3"):
        assert method(f"{text}:head={name}").drafters["draft"] == Hydra(name)
    assert method("talon:drafter=hydra").missing == ("head",)


@pytest.fixture(scope="module")
def small() -> Runner:
    return small_target()


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["eagle3", "talon", "fixed-tree", "traversal", "auto"])
def test_the_tokens_are_those_of_plain_decoding(
    small: Runner, tmp_path: Path, name: str, arch: str, max_batch: int
) -> None:
    head = saved(tmp_path, raw_config(arch), random_tensors(small.info, arch))
    check_tokens(small, f"{name}:drafter=hydra:head={head}", max_batch)


@pytest.mark.parametrize("name", ["traversal", "specinfer"])
def test_the_distribution_is_the_targets(small: Runner, tmp_path: Path, name: str) -> None:
    head = saved(tmp_path, raw_config(), random_tensors(small.info))
    chosen = method(f"{name}:drafter=hydra:head={head}")
    check_law(small, chosen)


@pytest.mark.parametrize(("name", "wrong"), [("specinfer", 1.0), ("traversal", 0.5)])
def test_a_wrong_q_is_found(
    small: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: float
) -> None:
    """Of which all, or half of the probability, is that of other tokens."""
    head = saved(tmp_path, raw_config(), random_tensors(small.info))
    rows = VocabularyMap.target_rows

    def mixed(*given: Any) -> torch.Tensor:
        right = rows(*given)
        return right.lerp(right.roll(5, 1), wrong)

    monkeypatch.setattr(VocabularyMap, "target_rows", mixed)
    chosen = method(f"{name}:drafter=hydra:head={head}")
    assert not model_check(small).check_sampled("wrong", chosen, 600).passed
