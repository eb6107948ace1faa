"""Joined linears compute what they do one by one, and stay modules of their own."""

from typing import Any

import pytest
import torch
from torch import nn

from draftwood.runner.joined_linears import JoinedLinears, join_linears


def linears(*, bias: bool = False) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(8, size, bias=bias) for size in (6, 3, 4)]


def joined(given: list[nn.Linear]) -> JoinedLinears:
    found = join_linears(given)
    assert found is not None
    return found


def check(found: JoinedLinears, given: list[nn.Linear]) -> None:
    x = torch.randn(5, 8)
    with torch.no_grad():
        for own, each in zip(found(x), given, strict=True):
            assert torch.allclose(own, each(x), atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_outputs_and_weights_stay_what_they_were(bias: bool) -> None:
    given = linears(bias=bias)
    before = [{k: v.clone() for k, v in each.state_dict().items()} for each in given]
    found = joined(given)
    check(found, given)
    # One tensor, in the memory of which a weight can be changed in place.
    assert len({each.weight.untyped_storage().data_ptr() for each in given}) == 1
    for each, known in zip(given, before, strict=True):
        assert all(torch.equal(each.state_dict()[name], value) for name, value in known.items())
    with torch.no_grad():
        given[1].weight.mul_(2)
    check(found, given)
    found.undo()
    assert len({each.weight.untyped_storage().data_ptr() for each in given}) == 3
    assert torch.equal(given[1].weight, before[1]["weight"] * 2)


def test_weights_that_are_joined_in_inference_mode_can_be_changed_afterwards() -> None:
    given = linears(bias=True)
    with torch.inference_mode():
        found = joined(given)
    check(found, given)
    with torch.no_grad():
        given[1].weight.mul_(2)
        given[1].bias.mul_(2)
    check(found, given)
    with torch.inference_mode():
        found.undo()
    assert not any(each.is_inference() for linear in given for each in linear.parameters())
    given[1](torch.randn(5, 8)).sum().backward()


def test_a_linear_that_has_changed_is_called_by_itself() -> None:
    given = linears()
    found = joined(given)
    given[0].weight = nn.Parameter(torch.ones(6, 8))
    check(found, given)
    found.undo()
    found = joined(given)
    calls: list[int] = []
    given[2].register_forward_hook(lambda *_: calls.append(1))
    check(found, given)
    assert len(calls) == 2


def of_another_kind() -> list[Any]:
    first, second, third = linears()
    tied = nn.Linear(8, 6, bias=False)
    tied.weight = first.weight
    part = nn.Linear(8, 3, bias=False)
    part.weight.data = torch.randn(9, 8)[:3]
    patched = nn.Linear(8, 3, bias=False)
    patched.forward = second.forward  # type: ignore[method-assign]
    return [
        [first, nn.Linear(8, 3)],
        [first, nn.Linear(7, 3, bias=False)],
        [first, nn.Linear(8, 3, bias=False).bfloat16()],
        [first, nn.Sequential(third)],
        [first, tied],
        [first, part],
        [first, patched],
        [first, None],
    ]


@pytest.mark.parametrize("which", range(8))
def test_others_are_left_as_they_are(which: int) -> None:
    assert join_linears(of_another_kind()[which]) is None


def test_without_memory_they_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    given = linears()
    places = [each.weight.data_ptr() for each in given]
    monkeypatch.setattr(torch, "cat", full)
    assert join_linears(given) is None
    assert [each.weight.data_ptr() for each in given] == places
