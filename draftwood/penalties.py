"""The presence and frequency penalties, which transformers lacks.

Knows nothing of requests or trees: like transformers' own processors it maps token ids and scores
to scores.
"""

from typing import ClassVar

import torch
from transformers import LogitsProcessor


class PresenceFrequencyPenalty(LogitsProcessor):
    """Lowers the scores of tokens generated before, as OpenAI's API defines it.

    ``scores[j] -= frequency * count[j] + presence * (count[j] > 0)``, where ``count[j]`` is how
    often ``j`` was *generated*: the first ``prompt_length`` ids are not counted. (OpenAI API
    reference, "Frequency and presence penalties".)
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
