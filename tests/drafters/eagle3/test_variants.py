"""Published variants of EAGLE-3 heads: each is loaded from tensors under published names, agrees
with its equations written out here in plain torch, and decodes what plain decoding does.

The reference knows nothing of the package: it takes the checkpoint's tensors by their names.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from draftwood.drafters.eagle3.checkpoint import load_head, save_head
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
from tests.factories.tiny_llama import VOCAB as V
from tests.factories.tiny_llama import tiny_llama

H = 32
"""Width of the target and, except where a head is narrower, of the head."""
LAYERS, HEADS, KV, D, FFN, EPS, THETA = 8, 4, 2, 8, 20, 1e-5, 50.0
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Variant:
    """A head as it is published.

    Attributes:
        config: what its ``config.json`` has beside the sizes; None takes a field away.
        taps: the target's layers whose entering states it reads, as this test means them.
        layers: decoder layers.
        drafted: its tokens, in the target's ids; None: all.
        own_embedding, own_output: whether the file holds these tables.
        fc, fc_bias, input_norm, fc_norm, qk_norm, norm_output: parts of the equations.
        prefix, first: of names.
        rows: of ``embed_tokens`` and ``lm_head`` in the file, where padded otherwise.
        nested: the speculators layout.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    taps: tuple[int, ...] = (2, 4, 5)
    layers: int = 1
    drafted: tuple[int, ...] | None = None
    own_embedding: bool = False
    own_output: bool = True
    fc: bool = True
    fc_bias: bool = False
    input_norm: bool = False
    fc_norm: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    norm_output: bool = False
    prefix: str = ""
    first: str = "midlayer."
    rows: int = V
    nested: bool = False
    t2d: torch.Tensor | None = None


SOME = tuple(range(0, V, 3))
SPECULATORS: dict[str, Any] = {"nested": True, "first": "layers.0."}
VARIANTS = {
    "plain": Variant(drafted=SOME),
    "no lm_head, all tokens": Variant(own_output=False),
    "no lm_head, some tokens": Variant(own_output=False, drafted=SOME),
    "no lm_head, tied": Variant(
        {"tie_word_embeddings": True}, own_output=False, own_embedding=True
    ),
    "no draft_vocab_size, d2t": Variant({"draft_vocab_size": None}, drafted=SOME),
    "no draft_vocab_size": Variant({"draft_vocab_size": None}),
    "lm_head and embedding padded": Variant(
        {"draft_vocab_size": None}, rows=320, own_embedding=True
    ),
    "embedding without padding": Variant(drafted=SOME, rows=V - 3, own_embedding=True),
    "t2d all false": Variant(drafted=SOME, t2d=torch.zeros(V, dtype=torch.bool)),
    "t2d padded": Variant(drafted=SOME, t2d=torch.ones(512, dtype=torch.bool)),
    "two layers": Variant(layers=2),
    "three layers, speculators": Variant(layers=3, drafted=SOME, **SPECULATORS),
    "model. prefix": Variant(prefix="model.", drafted=SOME),
    "model. prefix, layers": Variant(prefix="model.", first="layers.0.", layers=2),
    "fc.bias": Variant({"bias": True}, fc_bias=True),
    "fc.bias, unsaid": Variant(fc_bias=True),
    "fc_norm and norm_output": Variant(
        {"fc_norm": True, "norm_output": True}, fc_norm=True, norm_output=True, **SPECULATORS
    ),
    "fc_norm, unsaid": Variant(fc_norm=True),
    "norm_output alone": Variant({"norm_output": True}, norm_output=True, layers=2),
    "input_norm": Variant({"norm_before_fc": True}, input_norm=True, drafted=SOME, **SPECULATORS),
    "input_norm, named by eagle_config": Variant(
        {"eagle_config": {"norm_before_fc": True}}, input_norm=True
    ),
    "last hidden state alone": Variant(
        {"eagle_config": {"use_aux_hidden_state": False}}, taps=(LAYERS,), fc=False, drafted=SOME
    ),
    "Qwen3 layer, speculators": Variant(
        {"model_type": "qwen3"}, qk_norm=True, drafted=SOME, **SPECULATORS
    ),
    "Qwen3 layers, two": Variant(qk_norm=True, layers=2, first="layers.0."),
    "flat target_layer_ids, five taps": Variant(
        {"target_layer_ids": [0, 2, 3, 5, 6], "architectures": ["Qwen3Eagle3Model"]},
        taps=(1, 3, 4, 6, 7),
        qk_norm=True,
        first="layers.0.",
    ),
    "biases of queries, keys and values": Variant(qkv_bias=True, layers=2),
}
ids = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def tensors_of(variant: Variant, seed: int = 0) -> Tensors:
    """Random tensors under canonical names: the first layer is ``layers.0``."""
    generator = torch.Generator().manual_seed(seed)

    def made(*shape: int) -> torch.Tensor:
        return 0.3 * torch.randn(shape, generator=generator)

    def gain(width: int) -> torch.Tensor:
        return 1 + made(width)

    found: Tensors = {"norm.weight": gain(H)}
    features = len(variant.taps) * H
    if variant.fc:
        found["fc.weight"] = made(H, features)
    if variant.fc_bias:
        found["fc.bias"] = made(H)
    if variant.input_norm:
        found["input_norm.weight"] = gain(features)
    if variant.fc_norm:
        found |= {f"fc_norm.{i}.weight": gain(H) for i in range(len(variant.taps))}
    for i in range(variant.layers):
        layer, width = f"layers.{i}", H if i else 2 * H
        sizes = {"q": HEADS * D, "k": KV * D, "v": KV * D}
        for name, size in sizes.items():
            found[f"{layer}.self_attn.{name}_proj.weight"] = made(size, width)
            if variant.qkv_bias:
                found[f"{layer}.self_attn.{name}_proj.bias"] = made(size)
        found[f"{layer}.self_attn.o_proj.weight"] = made(H, HEADS * D)
        if variant.qk_norm:
            found |= {f"{layer}.self_attn.{name}_norm.weight": gain(D) for name in "qk"}
        for name in ("input_layernorm", "post_attention_layernorm", *(["hidden_norm"] * (not i))):
            found[f"{layer}.{name}.weight"] = gain(H)
        for name in ("gate", "up"):
            found[f"{layer}.mlp.{name}_proj.weight"] = made(FFN, H)
        found[f"{layer}.mlp.down_proj.weight"] = made(H, FFN)
    if variant.own_embedding:
        found["embed_tokens.weight"] = made(variant.rows, H)
    if variant.own_output:
        rows = variant.rows if variant.drafted is None else len(variant.drafted)
        found["lm_head.weight"] = made(rows, H)
    if variant.drafted is not None:
        drafted = torch.tensor(variant.drafted)
        found["d2t"] = drafted - torch.arange(len(drafted))
        found["t2d"] = torch.isin(torch.arange(V), drafted)
    if variant.t2d is not None:
        found["t2d"] = variant.t2d
    return found


def written(directory: Path, variant: Variant) -> Path:
    """The head as a checkpoint."""
    layer: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": H,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": D,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "num_hidden_layers": variant.layers,
        "max_position_embeddings": 256,
        "vocab_size": 32000,
    }
    own = dict(variant.config)
    config: dict[str, Any] = layer
    if variant.nested:
        layer["model_type"] = own.pop("model_type", "llama")
        config = {"speculators_model_type": "eagle3", "transformer_layer_config": layer}
    if variant.drafted is not None:
        config["draft_vocab_size"] = len(variant.drafted)
    config |= own
    names = {
        name: variant.prefix + name.replace("layers.0.", variant.first)
        for name in tensors_of(variant)
    }
    names |= {name: name for name in ("d2t", "t2d", "lm_head.weight") if name in names}
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    stored = {names[name]: tensor for name, tensor in tensors_of(variant).items()}
    save_file(stored, directory / "model.safetensors")
    return directory


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def rotated(x: torch.Tensor) -> torch.Tensor:
    """``[n, heads, D]`` of positions 0 to n - 1."""
    place = torch.arange(len(x), dtype=x.dtype)[:, None]
    angle = place * THETA ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Reference:
    """A head's equations, row by row in float64."""

    def __init__(
        self, variant: Variant, table: torch.Tensor, output: torch.Tensor, broken: str = ""
    ) -> None:
        self.variant, self.broken = variant, broken
        self.t = {n: t.double() for n, t in tensors_of(variant).items() if n not in ("d2t", "t2d")}
        self.table = self.t.get("embed_tokens.weight", table.double())
        if len(self.table) < V:
            self.table = torch.cat([self.table, torch.zeros(V - len(self.table), H).double()])
        shared = self.table if variant.config.get("tie_word_embeddings") else output.double()
        drafted = torch.arange(V) if variant.drafted is None else torch.tensor(variant.drafted)
        self.output = self.t.get("lm_head.weight", shared[drafted])[: len(drafted)]

    def h(self, features: torch.Tensor) -> torch.Tensor:
        """h of committed tokens: ``[n, H]`` from ``[n, taps * H]``."""
        x, t = features.double(), self.t
        if self.variant.input_norm:
            x = rms(x, t["input_norm.weight"])
        if self.variant.fc_norm:
            parts = x.chunk(len(self.variant.taps), dim=-1)
            normed = [rms(part, t[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)]
            x = torch.cat(normed, dim=-1)
        if self.variant.fc:
            x = x @ t["fc.weight"].T
        if self.variant.fc_bias and self.broken != "fc_bias":
            x = x + t["fc.bias"]
        return x

    def attention(self, i: int, x: torch.Tensor) -> torch.Tensor:
        t, at = self.t, f"layers.{i}.self_attn"

        def heads(name: str) -> torch.Tensor:
            y = x @ t[f"{at}.{name}_proj.weight"].T
            if self.variant.qkv_bias:
                y = y + t[f"{at}.{name}_proj.bias"]
            y = y.view(len(x), -1, D)
            if name != "v":
                y = rms(y, t[f"{at}.{name}_norm.weight"]) if self.variant.qk_norm else y
                y = rotated(y)
            return y.repeat_interleave(HEADS // y.shape[1], dim=1).transpose(0, 1)

        q, k, v = heads("q"), heads("k"), heads("v")
        later = torch.ones(len(x), len(x)).triu(1).bool()
        weights = (q @ k.transpose(1, 2) / D**0.5).masked_fill(later, -torch.inf).softmax(-1)
        mixed = (weights @ v).transpose(0, 1).reshape(len(x), -1)
        found: torch.Tensor = mixed @ t[f"{at}.o_proj.weight"].T
        return found

    def forward(self, tokens: list[int], h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits ``[n, Vd]`` and the next rows' h ``[n, H]``."""
        t = self.t
        for i in range(self.variant.layers):
            layer = f"layers.{i}"
            normed = rms(h, t[f"{layer}.{'input_layernorm' if i else 'hidden_norm'}.weight"])
            if i == 0:
                embedded = rms(self.table[tokens], t["layers.0.input_layernorm.weight"])
                normed = torch.cat([embedded, normed], dim=-1)
            h = h + self.attention(i, normed)
            x = rms(h, t[f"{layer}.post_attention_layernorm.weight"])
            gate, up = (x @ t[f"{layer}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            h = h + (torch.nn.functional.silu(gate) * up) @ t[f"{layer}.mlp.down_proj.weight"].T
        normed = rms(h, t["norm.weight"])
        recycled = self.variant.norm_output and self.broken != "norm_output"
        return normed @ self.output.T, normed if recycled else h

    def chain(self, tokens: list[int], features: torch.Tensor) -> torch.Tensor:
        """Logits ``[n, Vd]`` of tokens of which the first have features."""
        h = self.h(features)
        logits, nexts = self.forward(tokens[: len(h)], h)
        for end in range(len(h) + 1, len(tokens) + 1):
            h = torch.cat([h, nexts[-1:]])
            logits, nexts = self.forward(tokens[:end], h)
        return logits


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=LAYERS), self_test=False)


@pytest.fixture(scope="module")
def exact() -> Runner:
    """The same in float64, where nothing but what transformers computes in float32 is rounded."""
    return attach(tiny_llama(layers=LAYERS).double(), self_test=False)


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), atol=1e-5, rtol=1e-5)


def facts(target: Runner) -> tuple[torch.Tensor, torch.Tensor]:
    model: Any = target.model
    return model.model.embed_tokens.weight.detach(), model.lm_head.weight.detach()


def chained(head: Any, tokens: list[int], features: torch.Tensor) -> torch.Tensor:
    """Logits of a chain as :meth:`Reference.chain` has them, by the head and its cache."""
    known = len(features)
    h = head.project(features)[None]
    out = head(torch.tensor([tokens[:known]]), hidden=h, use_cache=True)
    logits, fed = [out.logits[0]], out.hidden[:, -1:]
    for token in tokens[known:]:
        step = head(torch.tensor([[token]]), hidden=fed, past_key_values=out.past_key_values)
        logits.append(step.logits[0])
        fed = step.hidden
    return torch.cat(logits)


@ids
@torch.inference_mode()
def test_equal_to_its_equations(exact: Runner, variant: Variant, tmp_path: Path) -> None:
    where = written(tmp_path / "head", variant)
    head = load_head(where, exact.info, exact.embedding(), exact.lm_head())
    assert head.taps == variant.taps
    drafted = range(V) if variant.drafted is None else variant.drafted
    assert head.target_ids().tolist() == list(drafted)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, V, (9,), generator=generator).tolist()
    tokens[2] = V - 1
    features = torch.randn(5, len(variant.taps) * H, generator=generator)
    wanted = Reference(variant, *facts(exact)).chain(tokens, features)
    close(chained(head, tokens, features), wanted)
    saved = load_head(
        save_head(head, tmp_path / "again"), exact.info, exact.embedding(), exact.lm_head()
    )
    close(chained(saved, tokens, features), wanted)


@pytest.mark.parametrize("name", ["fc.bias", "norm_output alone"])
@torch.inference_mode()
def test_a_reference_that_leaves_it_out_differs(exact: Runner, name: str, tmp_path: Path) -> None:
    variant = VARIANTS[name]
    head = load_head(written(tmp_path / "head", variant), exact.info, exact.embedding())
    features = torch.randn(3, len(variant.taps) * H)
    tokens = [1, 2, 3, 4, 5]
    part = {"fc.bias": "fc_bias"}.get(name, "norm_output")
    wrong = Reference(variant, *facts(exact), broken=part).chain(tokens, features)
    assert (chained(head, tokens, features).double() - wrong).abs().max() > 0.01


@torch.inference_mode()
def test_the_last_state_is_what_the_lm_head_reads(target: Runner) -> None:
    ids = torch.tensor([[5, 9, 11]])
    slot = target.open(8)
    rows = target.prefill([slot], [ids[0].tolist()], Needs(taps=(LAYERS,)))[0]
    target.release(slot)
    model: Any = target.model
    assert rows.features is not None
    close(model.lm_head(rows.features), model(ids).logits[0])


@ids
def test_decoding_is_lossless(target: Runner, variant: Variant, tmp_path: Path) -> None:
    where = str(written(tmp_path / "head", variant))
    requests = [
        Request([3, 9, 4, 3, 9], 10, SamplingParams(temperature=t, seed=4)) for t in (0.0, 0.0, 0.9)
    ]
    requests[1] = Request([7, V - 1], 10)
    plain = [done.tokens for done in Engine(target, method("ar")).generate(requests)]
    for spelt in ("eagle3", "talon:drafter=eagle3"):
        engine = Engine(target, method(spelt, head=where, budget=9))
        found = engine.generate(requests)
        assert [done.tokens for done in found] == plain
        assert all(done.tally.drafted for done in found)


def test_a_shared_lm_head_is_not_owned(target: Runner, tmp_path: Path) -> None:
    where = written(tmp_path / "head", VARIANTS["no lm_head, all tokens"])
    head = load_head(where, target.info, target.embedding())
    assert not [name for name in head.state_dict() if "lm_head" in name]
    with pytest.raises(DraftwoodError, match="share_output"):
        head(torch.tensor([[1]]))
    with pytest.raises(DraftwoodError, match=r"lm_head is \[9, 32\].*needs one of \[260, 32\]"):
        head.share_output(torch.nn.Linear(32, 9))
    output = target.lm_head()
    assert output is not None
    head.share_output(output)
    assert head(torch.tensor([[1]])).logits.shape == (1, 1, V)
    assert output not in list(head.modules())


def test_an_lm_head_for_some_tokens_needs_the_targets(target: Runner, tmp_path: Path) -> None:
    where = written(tmp_path / "head", VARIANTS["no lm_head, some tokens"])
    with pytest.raises(DraftwoodError, match=r"lacks lm_head\.weight;"):
        load_head(where, target.info, target.embedding())
