"""Presence and frequency penalties by hand."""

import pytest
import torch

from draftwood.sampling.processors import PresenceFrequencyPenalty


@pytest.mark.parametrize(
    ("presence", "frequency", "prompt", "ids", "change"),
    [
        # Generated tokens count, the prompt's do not.
        (0.5, 0.25, 2, [3, 3, 1, 1, 0], [-0.75, -1.0, 0.0, 0.0]),
        (2.0, -1.0, 3, [0, 1, 1], [0.0, 0.0, 0.0, 0.0]),
        # Negative penalties encourage.
        (-1.0, -0.5, 0, [1, 1], [0.0, 2.0, 0.0, 0.0]),
    ],
)
def test_penalties_count_generated_tokens_only(
    presence: float, frequency: float, prompt: int, ids: list[int], change: list[float]
) -> None:
    penalty = PresenceFrequencyPenalty(presence=presence, frequency=frequency, prompt_length=prompt)
    scores = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    after = penalty(torch.tensor([ids]), scores)
    assert (after - scores).tolist() == [change]
    assert scores.tolist() == [[1.0, 2.0, 3.0, 4.0]]
