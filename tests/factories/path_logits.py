"""What trees are compared with: every path decoded alone by the plain model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from draftwood.protocols import TargetOutput
from draftwood.tree import TokenTree, TreeBuilder

TOLERANCE = 1e-4
"""Absolute, for logits of a few units in float32."""


def random_tree(rng: np.random.Generator, nodes: int, vocab: int) -> TokenTree:
    """A recursive tree: each node hangs below a random earlier one; siblings differ."""
    builder = TreeBuilder(int(rng.integers(vocab)))
    while len(builder) < nodes:
        parent = int(rng.integers(max(0, len(builder) - 6), len(builder)))
        builder.add(parent, int(rng.integers(vocab)), "random")
    return builder.build()


def random_prompts(rng: np.random.Generator, lengths: Sequence[int], vocab: int) -> list[list[int]]:
    """Token ids of the given lengths."""
    return [rng.integers(vocab, size=length).tolist() for length in lengths]


@torch.no_grad()
def plain_logits(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """``[n, V]`` of the model's own forward over the whole text."""
    ids = torch.tensor([tokens], device=model.device)
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0]
    return logits


def greedy_tokens(model: Any, ids: torch.Tensor, count: int, **settings: Any) -> list[int]:
    """The tokens of plain greedy ``generate``, prompt included; no end of text ends it."""
    tokens: list[int] = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        **settings,
    )[0].tolist()
    return tokens


def path_logits(model: Any, prefix: Sequence[int], tree: TokenTree) -> torch.Tensor:
    """``[n, V]``: for every node, what the plain model says after prefix, root and its path."""
    rows = []
    for node in range(len(tree)):
        text = [*prefix, int(tree.tokens[0]), *tree.path_tokens(node)]
        rows.append(plain_logits(model, text)[-1])
    return torch.stack(rows)


def worst(rows: TargetOutput, expected: torch.Tensor) -> float:
    """Largest difference between a tree's logits and the expected ones."""
    assert rows.logits.shape == expected.shape
    return float((rows.logits - expected).abs().max())
