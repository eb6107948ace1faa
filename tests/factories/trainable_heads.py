"""A tiny target and tiny heads for it, with weights that tell every part of the layer apart."""

from typing import Any

import torch

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.train.head import new_head
from draftwood.lab.train.head_plan import HeadPlan
from draftwood.lab.train.recipe import ModelShape
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.text_model import new_model

EVERY_OTHER = list(range(1, 40, 2))
"""A draft vocabulary: every other token of the target's 40."""

SHAPE = ModelShape(hidden=16, layers=4, heads=4, kv_heads=2, head_dim=6, ffn=24, context=256)


def text(rows: int, length: int) -> torch.Tensor:
    """Random tokens of the target, int64 [rows, length]."""
    return torch.randint(40, (rows, length), generator=torch.Generator().manual_seed(7))


def teacher(vocabulary: int = 40, seed: int = 1) -> Teacher:
    """A target whose layers all matter and whose tokens differ in likelihood."""
    model = new_model(SHAPE, vocabulary, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.3 * noise + float("norm" in name))
    return Teacher(model, "tiny")


def random_head(of: Teacher, drafted: list[int], seed: int = 0, **plan: Any) -> Eagle3Head:
    """A head that can draft ``drafted``, all of its parameters random."""
    config = HeadPlan(draft_vocab=len(drafted), **plan).config(of)
    head = new_head(config, of, torch.tensor(drafted).numpy(), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.3 * noise + float("norm" in name))
    return head


def as_drafting(
    head: Eagle3Head, features: torch.Tensor, tokens: torch.Tensor, start: int, steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and pre-norm outputs, [steps, ..], of the one chain that starts at row ``start``.

    The head's own forward and cache, row after row: once over the rows where the target has been,
    then on what it returned itself.

    Args:
        head: any.
        features: the target's [length, taps * Ht].
        tokens: int64 [length].
        start: the last row with features.
        steps: how many rows are looked at, that one included.
    """
    stem = tokens[None, 1 : start + 2]
    given = head.project(features[None, : start + 1])
    out = head(stem, hidden=given, use_cache=True, logits_to_keep=1)
    logits, hidden = [out.logits[0, -1]], [out.hidden[0, -1]]
    for step in range(1, steps):
        token = tokens[None, start + 1 + step : start + 2 + step]
        out = head(token, hidden=hidden[-1][None, None], past_key_values=out.past_key_values)
        logits.append(out.logits[0, -1])
        hidden.append(out.hidden[0, -1])
    return torch.stack(logits), torch.stack(hidden)
