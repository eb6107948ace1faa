"""Logits processors: those of sampling parameters, and properties of any processor.

The processors are transformers' own where it has them, in the order of ``generate``, but for a
quicker top-p.
"""

from collections.abc import Collection
from typing import ClassVar

import torch
from transformers import LogitsProcessor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from draftwood.sampling.params import SamplingParams
from draftwood.sampling.top_p import TopP


class PresenceFrequencyPenalty(LogitsProcessor):
    """OpenAI's presence and frequency penalties.

    ``scores[j] -= frequency * count[j] + presence * (count[j] > 0)``, where ``count[j]`` counts
    how often ``j`` was *generated*, the first ``prompt_length`` ids left out (OpenAI API reference,
    "Frequency and presence penalties").
    """

    keeps_state: ClassVar = False

    def __init__(self, *, presence: float, frequency: float, prompt_length: int) -> None:
        self._presence = presence
        self._frequency = frequency
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores float ``[B, V]`` after ``input_ids`` int64 ``[B, L]``."""
        generated = input_ids[:, self._prompt_length :]
        ones = torch.ones(generated.shape, dtype=scores.dtype, device=scores.device)
        counts = torch.zeros_like(scores).scatter_add_(1, generated, ones)
        return scores - self._frequency * counts - self._presence * (counts > 0)


class WithheldTokens(LogitsProcessor):
    """Suppresses tokens, such as those that end a sequence, until a text has some length.

    As transformers' ``MinNewTokensLengthLogitsProcessor``, on any device.

    Args:
        tokens: ids that are suppressed.
        until: length of the text, prompt included, from which on they may come.
    """

    keeps_state: ClassVar = False

    def __init__(self, tokens: Collection[int], until: int) -> None:
        self._suppress = SuppressTokensLogitsProcessor(sorted(tokens))
        self._until = until

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores float32 ``[B, V]`` after ``input_ids`` int64 ``[B, L]``."""
        return self._suppress(input_ids, scores) if input_ids.shape[1] < self._until else scores


def processors_of(params: SamplingParams, prompt_length: int) -> tuple[LogitsProcessor, ...]:
    """The processors of sampling parameters, in the order of ``generate``.

    Bias, penalties and bans come first, then, above temperature 0, temperature, top-k, top-p and
    min-p. ``prompt_length`` is the number of the request's tokens that were not generated.
    """
    found: list[LogitsProcessor] = []
    if params.logit_bias:
        bias: list[list[list[int] | float]] = [
            [[token], value] for token, value in params.logit_bias.items()
        ]
        found.append(SequenceBiasLogitsProcessor(bias))
    if params.repetition_penalty != 1:
        found.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.banned_tokens:
        found.append(SuppressTokensLogitsProcessor(params.banned_tokens))
    if params.presence_penalty != 0 or params.frequency_penalty != 0:
        found.append(
            PresenceFrequencyPenalty(
                presence=params.presence_penalty,
                frequency=params.frequency_penalty,
                prompt_length=prompt_length,
            )
        )
    if params.temperature not in {0, 1}:
        found.append(TemperatureLogitsWarper(params.temperature))
    if params.temperature and params.top_k:
        found.append(TopKLogitsWarper(params.top_k))
    if params.temperature and params.top_p < 1:
        found.append(TopP(params.top_p))
    if params.temperature and params.min_p:
        found.append(MinPLogitsWarper(params.min_p))
    return tuple(found)


# Their scores do not depend on the tokens before.
_ROW_BY_ROW = (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TopP,
    MinPLogitsWarper,
)


def reads_history(processor: LogitsProcessor) -> bool:
    """Whether a processor's scores may depend on earlier tokens."""
    return type(processor) not in _ROW_BY_ROW


def by_rows(processor: LogitsProcessor) -> bool:
    """Whether it can be applied to paths of one length together, one in each row."""
    if type(processor) is RepetitionPenaltyLogitsProcessor:
        return processor.prompt_ignore_length is None
    return type(processor) in (*_ROW_BY_ROW, *_BY_ROWS)


# Each row's scores depend on its own token ids. Other processors may tell rows by their number.
_BY_ROWS = (
    PresenceFrequencyPenalty,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WithheldTokens,
)


# Stateless, according to transformers' source: their scores depend on their arguments alone.
_STATELESS = frozenset(
    {
        "AlternatingCodebooksLogitsProcessor",
        "EncoderNoRepeatNGramLogitsProcessor",
        "EncoderRepetitionPenaltyLogitsProcessor",
        "EpsilonLogitsWarper",
        "EtaLogitsWarper",
        "ExponentialDecayLengthPenalty",
        "ForcedBOSTokenLogitsProcessor",
        "ForcedEOSTokenLogitsProcessor",
        "InfNanRemoveLogitsProcessor",
        "LogitNormalization",
        "MinLengthLogitsProcessor",
        "MinNewTokensLengthLogitsProcessor",
        "MinPLogitsWarper",
        "NoBadWordsLogitsProcessor",
        "NoRepeatNGramLogitsProcessor",
        "PrefixConstrainedLogitsProcessor",
        "RepetitionPenaltyLogitsProcessor",
        "SequenceBiasLogitsProcessor",
        "SuppressTokensAtBeginLogitsProcessor",
        "SuppressTokensLogitsProcessor",
        "TemperatureLogitsWarper",
        "TopHLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
        "TypicalLogitsWarper",
        "WatermarkLogitsProcessor",
    }
)


def may_keep_state(processor: object) -> bool:
    """Whether a processor's scores may depend on its earlier calls.

    Any processor that is not of transformers may keep state, unless its attribute ``keeps_state``
    is False.
    """
    kind = type(processor)
    stateless = kind.__module__ == LogitsProcessor.__module__ and kind.__name__ in _STATELESS
    return not stateless and getattr(processor, "keeps_state", True) is not False
