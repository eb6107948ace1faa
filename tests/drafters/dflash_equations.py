"""The equations of a DFlash block, written out key by key."""

from typing import Any

import torch
from torch.nn import functional

from draftwood.runner.runner import Runner
from tests.factories.dflash_drafters import HEAD_DIM


def norm(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def rope(rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotate ``[n, heads, d]``, halves against each other."""
    frequencies = 5000.0 ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
    angles = positions[:, None].float() * frequencies
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = rows.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def heads(rows: torch.Tensor) -> torch.Tensor:
    return rows.view(len(rows), -1, HEAD_DIM)


def convolved(
    own: dict[str, torch.Tensor], part: str, normed: torch.Tensor, rows: torch.Tensor, side: int
) -> torch.Tensor:
    """Rows ``[B, H]`` on a side of a sublayer, by DFlash2's kernels; as they are without these."""
    base = own.get(f"{part}.base_kernel")
    if base is None:
        return rows
    size = base.shape[1]
    dynamic = (normed @ own[f"{part}.kernel_projection.weight"].T).view(len(rows), 2, size, -1)
    groups = torch.arange(rows.shape[1]) // (rows.shape[1] // dynamic.shape[-1])
    found = torch.zeros_like(rows)
    for j in range(len(rows)):
        for t in range(min(size, j + 1)):
            found[j] += (base[side, t] + dynamic[j, side, t, groups]) * rows[j - t]
    return found


def literal(
    tensors: dict[str, torch.Tensor],
    raw: dict[str, Any],
    states: torch.Tensor,
    block: torch.Tensor,
    causal: bool | None,
) -> torch.Tensor:
    """The block's output ``[B, H]`` by the equations, key by key.

    ``states`` are the target's ``[n, taps * H]``, ``block`` the slots' embeddings.
    """
    context = norm(states @ tensors["fc.weight"].T, tensors["hidden_norm.weight"])
    n, slots = len(context), len(block)
    positions = torch.arange(n + slots)
    rows = block
    for i in range(raw["num_hidden_layers"]):
        own = {
            name.removeprefix(f"layers.{i}."): each
            for name, each in tensors.items()
            if name.startswith(f"layers.{i}.")
        }
        normed = norm(rows, own["input_layernorm.weight"])
        before = convolved(own, "attention_conv", normed, normed, 0)
        q = rope(
            norm(heads(before @ own["self_attn.q_proj.weight"].T), own["self_attn.q_norm.weight"]),
            positions[n:],
        )
        both = torch.cat([context, before])
        k = rope(
            norm(heads(both @ own["self_attn.k_proj.weight"].T), own["self_attn.k_norm.weight"]),
            positions,
        )
        v = heads(both @ own["self_attn.v_proj.weight"].T)
        window = raw.get("sliding_window") if i == 0 and "layer_types" in raw else None
        attended = torch.zeros_like(q)
        for slot in range(slots):
            at = n + slot
            ordered = window is not None if causal is None else causal
            seen = [
                key
                for key in range(n + slots)
                if (window is None or abs(at - key) < window) and (key <= at or not ordered)
            ]
            for head in range(q.shape[1]):
                group = head * v.shape[1] // q.shape[1]
                scores = k[seen, group] @ q[slot, head] / HEAD_DIM**0.5
                attended[slot, head] = scores.softmax(0) @ v[seen, group]
        after = attended.flatten(1) @ own["self_attn.o_proj.weight"].T
        rows = rows + convolved(own, "attention_conv", normed, after, 1)
        normed = norm(rows, own["post_attention_layernorm.weight"])
        before = convolved(own, "mlp_conv", normed, normed, 0)
        gate = functional.silu(before @ own["mlp.gate_proj.weight"].T)
        up = before @ own["mlp.up_proj.weight"].T
        after = (gate * up) @ own["mlp.down_proj.weight"].T
        rows = rows + convolved(own, "mlp_conv", normed, after, 1)
    return norm(rows, tensors["norm.weight"])


@torch.no_grad()
def block_of(
    tensors: dict[str, torch.Tensor],
    raw: dict[str, Any],
    taps: list[int],
    target: Runner,
    tokens: list[int],
) -> torch.Tensor:
    """The output ``[B, H]`` of the block behind a text.

    ``raw`` is a configuration with ``block_size``, and ``mask_token_id`` there or in
    ``dflash_config``.
    """
    options, model = raw.get("dflash_config", raw), target.model
    states = model(input_ids=torch.tensor([tokens[:-1]]), output_hidden_states=True)
    features = torch.cat([states.hidden_states[tap][0] for tap in taps], dim=-1)
    ids = torch.tensor([tokens[-1]] + [options["mask_token_id"]] * (raw["block_size"] - 1))
    block = model.get_input_embeddings()(ids) * options.get("input_embedding_scale", 1.0)
    return literal(tensors, raw, features, block, raw.get("is_causal"))
