"""Evaluation on held-out text: loss, repetition, agreement with a teacher, acceptance of a head."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.loops import pooled, repeats
from draftwood.lab.train.answer_spans import answer_marks
from draftwood.lab.train.batches import held_out_rows
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.eagle3 import unroll
from draftwood.lab.train.head_loss import DraftLabels, head_labels
from draftwood.lab.train.teacher import TargetStates, Teacher
from draftwood.lab.train.text_model import TextModel
from draftwood.lab.train.tokenizer import bytes_per_token

logger = logging.getLogger(__name__)

_LENGTH = 512
_ROWS = 32
_ROWS_AT_ONCE = 2
_PROMPT = 128
_CONTINUATION = 128


@dataclass(frozen=True)
class HeldOutLoss:
    """Loss on a domain's held-out text: number of tokens, nats per token, bits per byte."""

    tokens: int
    nats_per_token: float
    bits_per_byte: float


@dataclass(frozen=True)
class Repetition:
    """Repetition in a model's greedy texts, by :mod:`draftwood.lab.loops`.

    Attributes:
        greedy_loops: share of the texts that loop.
        greedy_repeated_8grams: share of token 8-grams that occurred earlier in the same text.
    """

    greedy_loops: float
    greedy_repeated_8grams: float


@dataclass(frozen=True)
class Agreement:
    """Agreement of a student with a teacher on held-out text.

    Attributes:
        greedy: share of positions with the same most likely token.
        sampled: expected acceptance rate when sampling, the mean sum of min(p, q).
    """

    greedy: float
    sampled: float


@dataclass(frozen=True)
class HeadAcceptance:
    """Greedy acceptance of a head's chains on held-out text; lists have one value per step.

    Attributes:
        chains: number of chains, one from every position with text for all steps.
        nats_per_token: KL(target || head), as in training.
        greedy: share of chains whose token at this step is the target's likeliest.
        accepted: share of chains that are accepted up to this step.
        accepted_tokens: mean number of accepted tokens, the sum of ``accepted``.
    """

    chains: int
    nats_per_token: list[float]
    greedy: list[float]
    accepted: list[float]
    accepted_tokens: float


@torch.inference_mode()
def held_out_loss(
    model: TextModel, tokenizer: PreTrainedTokenizerFast, domain: Domain
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
def agreement(student: TextModel, teacher: TextModel, domain: Domain) -> Agreement:
    """Compare two models with the same vocabulary on the rows of `held_out_loss`."""
    same, overlap, count = 0, 0.0, 0
    for rows in _rows(domain):
        p = _logits(teacher, rows[:, :-1]).softmax(-1)
        q = _logits(student, rows[:, :-1]).softmax(-1)
        same += int((p.argmax(-1) == q.argmax(-1)).sum())
        overlap += float(torch.minimum(p, q).sum())
        count += rows[:, 1:].numel()
    return Agreement(greedy=round(same / count, 4), sampled=round(overlap / count, 4))


@dataclass(frozen=True, eq=False)
class DraftedChains:
    """Chains of ``steps`` tokens that a head drafted from every position of held-out rows.

    Attributes:
        rows: int64 ``[b, q]``; ``rows[:, i + 1]`` is the root of chain i.
        hits: bool ``[b, n, steps]``: the token is the target's likeliest.
        nats: ``[b, n, steps]``, KL(target || head), weighted as in training.
    """

    rows: Tensor
    hits: Tensor
    nats: Tensor

    def acceptance(self, after: Tensor | None = None) -> HeadAcceptance:
        """Acceptance of all chains, or of those whose root is where bool ``after`` ``[b, q]`` is.

        Chains follow the text, as in training. Where the text is not the target's greedy
        continuation, the result is an estimate.
        """
        counted = torch.ones_like(self.rows, dtype=torch.bool) if after is None else after
        counted = counted[:, 1 : 1 + self.hits.shape[1]]
        hits, nats = self.hits[counted].double(), self.nats[counted].double()
        chains, accepted = len(hits), hits.cumprod(-1).sum(0)
        return HeadAcceptance(
            chains=chains,
            nats_per_token=_shares(nats.sum(0), chains),
            greedy=_shares(hits.sum(0), chains),
            accepted=_shares(accepted, chains),
            accepted_tokens=round(float(accepted.sum()) / max(1, chains), 4),
        )


def held_out(
    domains: Iterable[Domain],
    tokenizer: PreTrainedTokenizerFast,
    chains: Callable[[Domain], DraftedChains],
) -> dict[str, dict[str, Any]]:
    """Acceptance on the held-out text of domains, of all of it and inside answers.

    Args:
        domains: whose text is drafted.
        tokenizer: tells answers from the rest of a dialogue, if its template has marks for it.
        chains: those of a domain.

    Returns:
        ``held_out`` and ``held_out_answers``, each with the acceptance by domain.
    """
    marks = answer_marks(tokenizer)
    found: dict[str, Any] = {}
    in_answers: dict[str, Any] = {}
    for domain in domains:
        drafted = chains(domain)
        found[domain.name] = asdict(drafted.acceptance())
        if marks is not None:
            inside = drafted.acceptance(marks.followed_by_answer(drafted.rows))
            in_answers |= {domain.name: asdict(inside)} if inside.chains else {}
    logger.info("held out: %s; in answers: %s", found, in_answers)
    return {"held_out": found, "held_out_answers": in_answers}


@torch.inference_mode()
def drafted_chains(head: Eagle3Head, teacher: Teacher, steps: int, domain: Domain) -> DraftedChains:
    """Draft a chain of ``steps`` tokens from every position of the rows of `held_out_loss`."""

    def scores(reading: TargetStates, tokens: Tensor, count: int) -> Iterator[Tensor]:
        for out in unroll(head, reading.features, tokens, steps):
            yield head.lm_head(head.norm(out[:, :count]))

    taps = tuple(head.config.taps)
    return chains_of(scores, head_labels(head), teacher, taps, steps, domain)


@torch.inference_mode()
def chains_of(
    scores: Callable[[TargetStates, Tensor, int], Iterable[Tensor]],
    labels: DraftLabels,
    teacher: Teacher,
    taps: tuple[int, ...],
    steps: int,
    domain: Domain,
) -> DraftedChains:
    """Chains of ``steps`` tokens from every position of the rows of `held_out_loss`.

    Args:
        scores: given the target's states, the tokens and the number n of chains of a row, the
            logits [rows, n, Vd] of each step.
        labels: of the draft vocabulary.
        teacher: the target.
        taps: the hidden states that ``scores`` reads.
        steps: of a chain.
        domain: whose text is drafted.
    """
    rows = torch.from_numpy(held_out_rows(domain, _LENGTH, _ROWS))
    count = max(0, rows.shape[1] - steps)
    hits = torch.zeros((len(rows), count, steps), dtype=torch.bool)
    nats = torch.zeros((len(rows), count, steps))
    for first in range(0, len(rows) if count else 0, _ROWS_AT_ONCE):
        own = slice(first, first + _ROWS_AT_ONCE)
        tokens = rows[own].to(labels.drafted.device)
        reading = teacher.read(tokens, taps)
        log_probs = teacher.log_probs(reading.last[:, 1:].flatten(0, 1))
        log_q, weights = (
            part.view(len(tokens), count + steps - 1, -1) for part in labels.of(log_probs)
        )
        wanted = log_probs.argmax(-1).view(len(tokens), -1)
        for k, logits in enumerate(scores(reading, tokens, count)):
            at = slice(k, k + count)
            log_p = logits.float().log_softmax(-1)
            apart = log_q[:, at].exp() * (log_q[:, at] - log_p)
            nats[own, :, k] = (weights[:, at] * apart).sum(-1).cpu()
            hits[own, :, k] = (labels.drafted[log_p.argmax(-1)] == wanted[:, at]).cpu()
    return DraftedChains(rows, hits, nats)


def _shares(sums: Tensor, count: int) -> list[float]:
    return [round(value / max(1, count), 4) for value in sums.tolist()]


@torch.inference_mode()
def greedy_loops(model: TextModel, domain: Domain, prompts: int = 16) -> Repetition:
    """Repetition in greedy 128-token continuations of 128-token held-out prompts."""
    rows = torch.from_numpy(held_out_rows(domain, _PROMPT, prompts)).to(model.device)
    given = rows[:, :-1]
    generated = cast(
        Tensor,
        model.generate(  # type: ignore[misc]
            input_ids=given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            max_new_tokens=_CONTINUATION,
            pad_token_id=0,
        ),
    )[:, given.shape[1] :]
    found = [repeats(row[: row.index(0)] if 0 in row else row) for row in generated.tolist()]
    return Repetition(
        greedy_loops=round(sum(each.loops for each in found) / len(found), 4),
        greedy_repeated_8grams=round(pooled(found).share, 4),
    )


def _rows(domain: Domain) -> tuple[Tensor, ...]:
    rows = torch.from_numpy(held_out_rows(domain, _LENGTH, _ROWS))
    return torch.split(rows, _ROWS_AT_ONCE)


def _logits(model: TextModel, tokens: Tensor) -> Tensor:
    logits: Tensor = model(input_ids=tokens.to(model.device), use_cache=False).logits
    return logits.float()
