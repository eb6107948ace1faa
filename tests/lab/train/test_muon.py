"""The optimiser of the matrices: what torch's does, in the dtype that is asked for."""

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.train.muon import Muon


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16)])
def test_updates_follow_torch(shape: tuple[int, int], dtype: torch.dtype | None) -> None:
    torch.manual_seed(2)
    start = torch.randn(shape)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimisers = (
        Muon([ours], lr=0.02, weight_decay=0.1, dtype=dtype),
        torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1),
    )
    for _ in range(4):
        gradient = torch.randn(shape)
        for parameter, optimiser in zip((ours, theirs), optimisers, strict=True):
            parameter.grad = gradient.clone()
            optimiser.step()
    moved, expected = (p.detach().sub(start).flatten() for p in (ours, theirs))
    # torch iterates in bfloat16, so directions agree to its precision only.
    assert torch.cosine_similarity(moved, expected, dim=0) > 0.999
    assert abs(float(moved.norm() / expected.norm()) - 1.0) < 0.02


def test_a_parameter_without_gradient_is_left() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    Muon([parameter]).step()
    assert torch.equal(parameter, torch.ones(4, 4))


def test_vectors_are_refused() -> None:
    with pytest.raises(DraftwoodError, match="AdamW"):
        Muon([torch.nn.Parameter(torch.ones(4))])
