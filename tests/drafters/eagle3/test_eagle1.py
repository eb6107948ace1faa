"""EAGLE-1 heads: their layer written out, the drafter's recurrence, and checkpoints."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.drafters.eagle3.checkpoint import load_any_head, load_head, save_head
from draftwood.drafters.eagle3.eagle1_head import Eagle1Head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.methods.binding import kind_of
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from tests.drafters.decoded_text import DecodedText
from tests.drafters.expand_and_check import drive
from tests.factories.eagle3_heads import tiny_config
from tests.factories.tiny_llama import VOCAB, tiny_llama

H, HEADS, KV_HEADS, SIZE, INNER, LAYERS = 32, 4, 2, 8, 20, 3
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": H,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50.0,
    "vocab_size": VOCAB,
}


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=LAYERS), chunk=16, self_test=False)


def tensors(*, fc_bias: bool = True, norms: bool = False, bias: bool = False) -> dict[str, Any]:
    """Random tensors under the published names."""
    torch.manual_seed(4)
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (H, 2 * H),
        "layers.0.self_attn.q_proj.weight": (HEADS * SIZE, H),
        "layers.0.self_attn.k_proj.weight": (KV_HEADS * SIZE, H),
        "layers.0.self_attn.v_proj.weight": (KV_HEADS * SIZE, H),
        "layers.0.self_attn.o_proj.weight": (H, HEADS * SIZE),
        "layers.0.mlp.gate_proj.weight": (INNER, H),
        "layers.0.mlp.up_proj.weight": (INNER, H),
        "layers.0.mlp.down_proj.weight": (H, INNER),
        "layers.0.post_attention_layernorm.weight": (H,),
        "embed_tokens.weight": (VOCAB, H),
    }
    if fc_bias:
        shapes["fc.bias"] = (H,)
    if norms:
        shapes |= {"embedding_layernorm.weight": (H,), "hidden_states_layernorm.weight": (H,)}
    if bias:
        sizes = {"q": HEADS * SIZE, "k": KV_HEADS * SIZE, "v": KV_HEADS * SIZE}
        shapes |= {f"layers.0.self_attn.{n}_proj.bias": (size,) for n, size in sizes.items()}
    return {
        name: 0.12 * torch.randn(shape) + float("norm" in name) for name, shape in shapes.items()
    }


def saved(
    directory: Path,
    given: dict[str, torch.Tensor],
    *,
    pickled: bool = False,
    raw: dict[str, Any] = CONFIG,
) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(raw))
    if pickled:
        torch.save(given, directory / "pytorch_model.bin")
    else:
        save_file(given, directory / "model.safetensors")
    return str(directory)


def head_of(directory: Path, target: Runner, **kind: bool) -> Eagle1Head:
    name = saved(directory, tensors(**kind))
    head = load_any_head(name, target, torch.float32)
    assert isinstance(head, Eagle1Head)
    return head


def norm(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def rope(rows: torch.Tensor) -> torch.Tensor:
    """Rotate ``[n, heads, d]``, halves against each other, by their positions."""
    frequencies = 50.0 ** (-torch.arange(0, SIZE, 2).float() / SIZE)
    angles = torch.arange(len(rows))[:, None].float() * frequencies
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = rows.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def literal(
    given: dict[str, torch.Tensor], rows: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """f' ``[n, H]`` by the paper's equations, for embeddings and features ``[n, H]``."""
    if "embedding_layernorm.weight" in given:
        rows = norm(rows, given["embedding_layernorm.weight"])
        states = norm(states, given["hidden_states_layernorm.weight"])
    z = torch.cat([rows, states], dim=-1) @ given["fc.weight"].T + given.get("fc.bias", 0.0)

    def part(name: str) -> torch.Tensor:
        weight = given[f"layers.0.self_attn.{name}_proj.weight"]
        found = z @ weight.T + given.get(f"layers.0.self_attn.{name}_proj.bias", 0.0)
        return found.view(len(z), -1, SIZE)

    q, k, v = rope(part("q")), rope(part("k")), part("v")
    attended = torch.zeros_like(q)
    for at in range(len(z)):
        for head in range(HEADS):
            group = head * KV_HEADS // HEADS
            scores = k[: at + 1, group] @ q[at, head] / SIZE**0.5
            attended[at, head] = scores.softmax(0) @ v[: at + 1, group]
    a = z + attended.flatten(1) @ given["layers.0.self_attn.o_proj.weight"].T
    normed = norm(a, given["layers.0.post_attention_layernorm.weight"])
    gate = functional.silu(normed @ given["layers.0.mlp.gate_proj.weight"].T)
    up = normed @ given["layers.0.mlp.up_proj.weight"].T
    return a + (gate * up) @ given["layers.0.mlp.down_proj.weight"].T


@pytest.mark.parametrize("kind", [{}, {"fc_bias": False}, {"norms": True}, {"bias": True}], ids=str)
@torch.no_grad()
def test_the_layer_is_that_of_the_paper(
    target: Runner, tmp_path: Path, kind: dict[str, bool]
) -> None:
    head, given = head_of(tmp_path, target, **kind), tensors(**kind)
    assert head.taps == (LAYERS,)
    ids, states = torch.tensor([3, 1, 4, 1, 5]), torch.randn(5, H)
    found = head(ids[None], hidden=head.project(states)[None])
    expected = literal(given, target.embedding()(ids), states)
    torch.testing.assert_close(found.hidden[0], expected, atol=1e-4, rtol=1e-4)
    output: Any = target.lm_head()
    torch.testing.assert_close(found.logits[0], output(expected), atol=1e-4, rtol=1e-4)


class HeadText(DecodedText):
    """A request of a target that decodes, and the head run over every path from scratch."""

    def __init__(
        self, target: Runner, head: Eagle1Head, drafter: HeadDrafter, slot: int, prompt: list[int]
    ) -> None:
        self.head = head
        super().__init__(target, drafter, slot, prompt)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        model: Any = self.target.model
        before = torch.tensor([self.tokens[:-1]])
        hidden = model.model(input_ids=before).last_hidden_state
        ids = self.tokens[1:]
        for token in [*self.path(node), None]:
            output = self.head(input_ids=torch.tensor([ids]), hidden=hidden)
            if token is not None:
                ids = [*ids, token]
                hidden = torch.cat([hidden, output.hidden[:, -1:]], dim=1)
        found: torch.Tensor = output.logits[0, -1]
        return found


def test_every_answer_equals_the_plain_recurrence(target: Runner, tmp_path: Path) -> None:
    head, model = ModelHost(target).head(saved(tmp_path, tensors()), "target")
    assert isinstance(head, Eagle1Head)
    drafter = HeadDrafter(head, model, target.info)
    assert drafter.needs == Needs(taps=(LAYERS,))
    rng = np.random.default_rng(0)
    texts = [
        HeadText(target, head, drafter, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((4, 9), (0, 21), (2, 1))
    ]
    assert drafter.forwards == 0
    assert drive(drafter, texts, rng, 5, VOCAB) == drafter.forwards


def test_pickles_and_prefixes_are_read(target: Runner, tmp_path: Path) -> None:
    given = tensors() | {"layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(2)}
    plain = head_of(tmp_path / "plain", target)
    spelt = {f"model.{name}": each for name, each in given.items()}
    for number, (stored, pickled) in enumerate(((given, True), (spelt, False))):
        name = saved(tmp_path / str(number), stored, pickled=pickled)
        head = load_any_head(name, target, torch.float32)
        for key, tensor in plain.state_dict().items():
            assert torch.equal(head.state_dict()[key], tensor), key


def speculators(kind: str = "eagle", **changes: Any) -> dict[str, Any]:
    """A ``config.json`` of the speculators library."""
    layer = {name: each for name, each in CONFIG.items() if name != "architectures"}
    return {
        "architectures": ["EagleSpeculator"],
        "speculators_model_type": kind,
        "transformer_layer_config": layer,
        **changes,
    }


@pytest.mark.parametrize("fc_bias", [True, False])
def test_heads_of_speculators_are_read(target: Runner, tmp_path: Path, fc_bias: bool) -> None:
    given = tensors(fc_bias=fc_bias)
    plain = head_of(tmp_path / "plain", target, fc_bias=fc_bias)
    spelt = {
        name.replace("fc.", "fusion_fc.").replace("layers.0.", "transformer."): tensor
        for name, tensor in given.items()
    } | {"lm_head.weight": torch.zeros(VOCAB, H)}
    raw = speculators(fusion_bias=fc_bias, layernorms=False)
    name = saved(tmp_path / "theirs", spelt, raw=raw)
    assert kind_of("head", name) == "eagle3"
    head = load_any_head(name, target, torch.float32)
    for key, tensor in plain.state_dict().items():
        assert torch.equal(head.state_dict()[key], tensor), key
    assert head.config.rope_parameters == plain.config.rope_parameters
    assert head.config.rms_norm_eps == plain.config.rms_norm_eps
    with pytest.raises(DraftwoodError, match='is "eagle": it is an EAGLE-1 head: give an EAGLE-3'):
        load_head(name, target.info)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (speculators(layernorms=True), "has layernorms = true .* not read"),
        (speculators(transformer_layer_architecture="OPTDecoderLayer"), "is OPTDecoderLayer"),
        (speculators(transformer_layer_config=None), "with no transformer_layer_config"),
        (speculators("mtp"), '"mtp": it is a target\'s MTP layer .* --method mtp with head=PATH'),
        (speculators("dflash"), "DFlash's family, not an EAGLE head: write drafter=dflash"),
        (speculators("wave"), r"none of the formats that are read \(eagle, eagle3, peagle\)"),
    ],
)
def test_other_formats_of_speculators_are_refused_by_name(
    target: Runner, tmp_path: Path, raw: dict[str, Any], complaint: str
) -> None:
    """Whatever their tensors are called."""
    name = saved(tmp_path, {"mtp_layers.0.input_proj.weight": torch.zeros(H, 2 * H)}, raw=raw)
    with pytest.raises(DraftwoodError, match=complaint):
        load_any_head(name, target, torch.float32)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"fc.weight": torch.zeros(16, 32)}, "has width 16, and the target 32"),
        ({"layers.1.mlp.up_proj.weight": torch.zeros(2, 2)}, "has 2 layers, and one is read"),
        ({"layers.0.mlp.up_proj.weight": torch.zeros(8, H)}, r"up_proj.weight is \[8, 32\]"),
        ({"norm.weight": torch.zeros(H)}, "has norm.weight besides"),
    ],
)
def test_what_does_not_fit_is_refused(
    target: Runner, tmp_path: Path, change: dict[str, torch.Tensor], complaint: str
) -> None:
    name = saved(tmp_path, tensors() | change)
    with pytest.raises(DraftwoodError, match=complaint):
        load_any_head(name, target, torch.float32)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_size": "x"}, "config.json is not valid: Field 'hidden_size' expected int"),
        (
            {"max_position_embeddings": 64.0},
            "config.json is not valid: Field 'max_position",
        ),
        ({"rope_scaling": "x"}, "config.json is not valid: Field 'rope_parameters' with value 'x'"),
        ({"hidden_act": "swish9"}, 'hidden_act is "swish9", which transformers does not have'),
        ({"rope_theta": "x"}, "config.json is not valid: unsupported operand"),
        ({"num_attention_heads": 0}, "config.json is not valid: integer .* by zero"),
        ({"intermediate_size": -1}, "config.json is not valid: .*negative dimension"),
    ],
)
def test_configurations_that_are_not_valid_are_refused(
    changes: dict[str, Any], complaint: str, target: Runner, tmp_path: Path
) -> None:
    name = saved(tmp_path, tensors(), raw=CONFIG | changes)
    with pytest.raises(DraftwoodError, match=f"^the EAGLE-1 head's {complaint}"):
        load_any_head(name, target, torch.float32)


def test_other_heads_are_eagle3s(target: Runner, tmp_path: Path) -> None:
    config = tiny_config(vocab_size=VOCAB, hidden_size=H, target_hidden_size=H, taps=(1, 0))
    made = save_head(Eagle3Head(config), tmp_path / "head")
    assert isinstance(load_any_head(str(made), target, torch.float32), Eagle3Head)
    with pytest.raises(DraftwoodError, match="EAGLE-1"):
        load_head(saved(tmp_path / "eagle1", tensors()), target.info)
