"""The optimiser of the matrices: what torch's does, in the dtype of the weights."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from draftwood.errors import DraftwoodError
from draftwood.lab.train.muon import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16)])
def test_orthogonalise_brings_singular_values_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape)
    before = torch.linalg.svdvals(matrices)
    after = torch.linalg.svdvals(orthogonalise(matrices))
    assert (before.amax(1) / before.amin(1)).min() > 2.0
    assert after.max() < 1.3
    assert after[:, : min(shape) // 2].min() > 0.6


def test_orthogonalise_keeps_singular_vectors() -> None:
    torch.manual_seed(1)
    matrix = torch.randn(12, 20)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    core = left.T @ orthogonalise(matrix[None])[0] @ right.T
    off = core - torch.diag(core.diagonal())
    assert off.abs().max() < 1e-4


@pytest.mark.parametrize("shape", [(16, 40), (40, 16)])
def test_updates_follow_torch(shape: tuple[int, int]) -> None:
    torch.manual_seed(2)
    start = torch.randn(shape)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimisers = (
        Muon([ours], lr=0.02, weight_decay=0.1),
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


def test_a_thread_pool_changes_nothing() -> None:
    def train(parameters: list[torch.nn.Parameter], optimiser: Muon) -> list[Tensor]:
        for step in range(3):
            for index, parameter in enumerate(parameters):
                generator = torch.Generator().manual_seed(10 * step + index)
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimiser.step()
        return [parameter.detach() for parameter in parameters]

    def fresh() -> list[torch.nn.Parameter]:
        return [torch.nn.Parameter(torch.ones(8, 6 + index % 2)) for index in range(11)]

    alone = fresh()
    expected = train(alone, Muon(alone))
    with ThreadPoolExecutor(2) as pool:
        spread = fresh()
        found = train(spread, Muon(spread, spread=pool.map))
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_a_parameter_without_gradient_is_left() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    Muon([parameter]).step()
    assert torch.equal(parameter, torch.ones(4, 4))


def test_vectors_are_refused() -> None:
    with pytest.raises(DraftwoodError, match="AdamW"):
        Muon([torch.nn.Parameter(torch.ones(4))])
