"""Presence and frequency penalties by hand."""

import torch

from draftwood.sampling.processors import PresenceFrequencyPenalty


def test_penalties_count_generated_tokens_only() -> None:
    penalty = PresenceFrequencyPenalty(presence=0.5, frequency=0.25, prompt_length=2)
    scores = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    after = penalty(torch.tensor([[3, 3, 1, 1, 0]]), scores)
    assert after.tolist() == [[1.0 - 0.75, 2.0 - 1.0, 3.0, 4.0]]
    assert scores.tolist() == [[1.0, 2.0, 3.0, 4.0]]


def test_without_generated_tokens_scores_are_unchanged() -> None:
    penalty = PresenceFrequencyPenalty(presence=2.0, frequency=-1.0, prompt_length=3)
    scores = torch.tensor([[1.0, 2.0]])
    assert torch.equal(penalty(torch.tensor([[0, 1, 1]]), scores), scores)


def test_negative_penalties_encourage() -> None:
    penalty = PresenceFrequencyPenalty(presence=-1.0, frequency=-0.5, prompt_length=0)
    assert penalty(torch.tensor([[1, 1]]), torch.zeros(1, 2)).tolist() == [[0.0, 2.0]]
