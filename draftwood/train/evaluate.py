"""How good a model is: loss on text it has not seen, loops, agreement with another model.

Knows models and domains; refuses to know how either was made.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from draftwood.loops import looping
from draftwood.train.batches import held_out_rows
from draftwood.train.corpus import Domain
from draftwood.train.tokenizer import bytes_per_token

_LENGTH = 512
_ROWS = 32
_ROWS_AT_ONCE = 2
_PROMPT = 128
_CONTINUATION = 128


@dataclass(frozen=True)
class HeldOutLoss:
    """Loss on a domain's held-out text: tokens predicted, nats per token, bits per byte."""

    tokens: int
    nats_per_token: float
    bits_per_byte: float


@dataclass(frozen=True)
class Agreement:
    """How a student follows a teacher over held-out text, as shares of positions.

    Attributes:
        greedy: both have the same most likely token.
        sampled: expected acceptance when sampling, the sum of min(p, q).
    """

    greedy: float
    sampled: float


@torch.inference_mode()
def held_out_loss(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, domain: Domain
) -> HeldOutLoss:
    """Measure ``model`` on up to 32 rows of 512 tokens of the domain's held-out text."""
    sizes = torch.tensor(bytes_per_token(tokenizer))
    nats, tokens, size = 0.0, 0, 0
    for rows in _rows(domain):
        logits = _logits(model, rows[:, :-1])
        wanted = rows[:, 1:]
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), wanted.to(logits.device).flatten(), reduction="sum"
        )
        nats += losses.item()
        tokens += wanted.numel()
        size += int(sizes[wanted].sum())
    return HeldOutLoss(
        tokens=tokens,
        nats_per_token=round(nats / tokens, 4),
        bits_per_byte=round(nats / float(np.log(2)) / max(1, size), 4),
    )


@torch.inference_mode()
def agreement(student: LlamaForCausalLM, teacher: LlamaForCausalLM, domain: Domain) -> Agreement:
    """Compare two models that share a vocabulary on the rows `held_out_loss` uses."""
    same, overlap, count = 0, 0.0, 0
    for rows in _rows(domain):
        p = _logits(teacher, rows[:, :-1]).softmax(-1)
        q = _logits(student, rows[:, :-1]).softmax(-1)
        same += int((p.argmax(-1) == q.argmax(-1)).sum())
        overlap += float(torch.minimum(p, q).sum())
        count += rows[:, 1:].numel()
    return Agreement(greedy=round(same / count, 4), sampled=round(overlap / count, 4))


@torch.inference_mode()
def loop_share(model: LlamaForCausalLM, domain: Domain, prompts: int = 16) -> float:
    """Share of greedy 128-token continuations of 128-token held-out prompts that end in a loop."""
    rows = torch.from_numpy(held_out_rows(domain, _PROMPT, prompts)).to(model.device)
    given = rows[:, :-1]
    written = cast(
        Tensor,
        model.generate(  # type: ignore[misc]
            input_ids=given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            max_new_tokens=_CONTINUATION,
            pad_token_id=0,
        ),
    )[:, given.shape[1] :]
    loops = 0
    for row in written.tolist():
        loops += looping(row[: row.index(0)] if 0 in row else row)
    return round(loops / len(rows), 4)


def _rows(domain: Domain) -> tuple[Tensor, ...]:
    rows = torch.from_numpy(held_out_rows(domain, _LENGTH, _ROWS))
    return torch.split(rows, _ROWS_AT_ONCE)


def _logits(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    logits: Tensor = model(input_ids=tokens.to(model.device), use_cache=False).logits
    return logits.float()
