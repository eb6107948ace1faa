"""EAGLE-3 heads as they are published, and their equations written out in plain torch.

The reference knows nothing of the package: it takes the checkpoint's tensors by their names.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.factories.tiny_llama import VOCAB as V

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
        mask: shape of ``mask_hidden``, whose last size is that of the features (P-EAGLE).
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
    mask: tuple[int, ...] = ()


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
        found |= _layer(variant, i, made)
    if variant.mask:
        found["mask_hidden"] = made(*variant.mask)
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


def _layer(variant: Variant, i: int, made: Callable[..., torch.Tensor]) -> Tensors:
    """Random tensors of layer number i."""
    found: Tensors = {}
    layer, width = f"layers.{i}", H if i else 2 * H
    sizes = {"q": HEADS * D, "k": KV * D, "v": KV * D}
    for name, size in sizes.items():
        found[f"{layer}.self_attn.{name}_proj.weight"] = made(size, width)
        if variant.qkv_bias:
            found[f"{layer}.self_attn.{name}_proj.bias"] = made(size)
    found[f"{layer}.self_attn.o_proj.weight"] = made(H, HEADS * D)
    if variant.qk_norm:
        found |= {f"{layer}.self_attn.{name}_norm.weight": 1 + made(D) for name in "qk"}
    for name in ("input_layernorm", "post_attention_layernorm", *(["hidden_norm"] * (not i))):
        found[f"{layer}.{name}.weight"] = 1 + made(H)
    for name in ("gate", "up"):
        found[f"{layer}.mlp.{name}_proj.weight"] = made(FFN, H)
    found[f"{layer}.mlp.down_proj.weight"] = made(H, FFN)
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
