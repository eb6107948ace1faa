"""Reads a GGUF file back and computes logits from nothing else, by the convention of the format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch


@dataclass(frozen=True)
class Read:
    """The file's keys, and its tensors as ``(type, values in float64)``."""

    keys: dict[str, Any]
    types: dict[str, str]
    tensors: dict[str, torch.Tensor]


def read(path: Path) -> Read:
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items()}
    types = {t.name: t.tensor_type.name for t in reader.tensors}
    tensors = {
        t.name: torch.from_numpy(
            np.array(gguf.dequantize(t.data, t.tensor_type), dtype=np.float64)
        ).reshape([int(n) for n in reversed(t.shape)])
        for t in reader.tensors
    }
    return Read(keys, types, tensors)


def logits(file: Read, ids: list[int]) -> torch.Tensor:
    """Float64 ``[L, V]``: a Llama whose rotary pairs are neighbouring dimensions of a head."""
    layers, heads, shared, size = (
        int(file.keys[f"llama.{key}"])
        for key in (
            "block_count",
            "attention.head_count",
            "attention.head_count_kv",
            "attention.key_length",
        )
    )
    at = file.tensors
    turns = _turns(file, len(ids), size)
    seen = torch.ones(len(ids), len(ids)).tril().bool()
    hidden = at["token_embd.weight"][ids]
    for n in range(layers):
        weight = {part: at[f"blk.{n}.{part}.weight"] for part in _PARTS}
        x = _normed(hidden, weight["attn_norm"], file)
        q = _turned((x @ weight["attn_q"].T).view(-1, heads, size), turns)
        k = _turned((x @ weight["attn_k"].T).view(-1, shared, size), turns)
        v = (x @ weight["attn_v"].T).view(-1, shared, size)
        k, v = (t.repeat_interleave(heads // shared, dim=1) for t in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / size**0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        attended = torch.einsum("hij,jhd->ihd", weights, v).flatten(1)
        hidden = hidden + attended @ weight["attn_output"].T
        x = _normed(hidden, weight["ffn_norm"], file)
        gate = torch.nn.functional.silu(x @ weight["ffn_gate"].T)
        hidden = hidden + (gate * (x @ weight["ffn_up"].T)) @ weight["ffn_down"].T
    head = at.get("output.weight", at["token_embd.weight"])
    return _normed(hidden, at["output_norm.weight"], file) @ head.T


_PARTS = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


def _turns(file: Read, length: int, size: int) -> torch.Tensor:
    """Unit complex numbers ``[L, 1, size / 2]``."""
    angles = float(file.keys["llama.rope.freq_base"]) ** (-torch.arange(0, size, 2).double() / size)
    divisors = file.tensors.get("rope_freqs.weight")
    if divisors is not None:
        angles = angles / divisors
    turned = torch.arange(length).double()[:, None] * angles
    return torch.polar(torch.ones_like(turned), turned)[:, None]


def _turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2)


def _normed(x: torch.Tensor, weight: torch.Tensor, file: Read) -> torch.Tensor:
    epsilon = float(file.keys["llama.attention.layer_norm_rms_epsilon"])
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight
