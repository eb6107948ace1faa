"""Weights in a layout that the CPU multiplies faster with few rows, swapped in and out exactly.

A step multiplies every weight matrix with 1 to 64 rows, where the library behind ``F.linear`` is
slow on the stored layout: it re-packs the matrix on every call, or walks it the wrong way. Two
layouts help, depending on machine and shape: the transpose, and oneDNN's blocked format (the op
inductor's freezing uses). Only the ``forward`` of exact ``nn.Linear`` instances is patched; names,
modules and ``state_dict`` keys stay. Knows nothing of models beyond their linears.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from draftwood.target.speeds import Choice, Weight, measured

logger = logging.getLogger(__name__)

Packing: TypeAlias = Literal["copy", "move", "off"]
Chooser: TypeAlias = Callable[[Sequence[Weight]], list[Choice | None]]

_DTYPES = (torch.float32, torch.bfloat16)


@dataclass
class _Packed:
    """A patched linear, and how to give it its own weight back."""

    module: nn.Linear
    choice: Choice
    weight: torch.Tensor
    freed: bool = False
    hook: Any = None

    def restore(self) -> None:
        """Give the module its plain weight again, bit for bit."""
        if self.freed:
            self.freed = False
            self.module.weight.data = self.choice.form.unpack(self.weight).clone()


class Packed:
    """The patched linears of one model; :meth:`undo` takes all patches back."""

    def __init__(self, members: list[_Packed]) -> None:
        self._members = members

    def __len__(self) -> int:
        return len(self._members)

    def undo(self) -> None:
        """Restore every weight and every ``forward``."""
        for member in self._members:
            member.restore()
            if member.hook is not None:
                member.hook.remove()
            del member.module.forward
        self._members = []


def pack(model: nn.Module, mode: Packing, choose: Chooser = measured) -> Packed:
    """Patch the linears of ``model`` that profit.

    Args:
        model: any module; only exact ``nn.Linear`` instances with plain float32 or bfloat16
            weights on the CPU are touched.
        mode: ``copy`` keeps the plain weights beside the packed ones; ``move`` frees those that
            can be rebuilt exactly (restored by :meth:`Packed.undo` and before ``state_dict``), and
            is for models nobody else uses; ``off`` patches nothing.
        choose: which layout each weight gets and for how many rows; by default measured on the
            spot.

    A patched linear runs plainly while gradients are recorded, for row counts where packing does
    not pay, and after its weight was changed in place.
    """
    members: list[_Packed] = []
    if mode == "off":
        return Packed(members)
    owners = Counter(
        parameter.untyped_storage().data_ptr()
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None and type(parameter.data) is torch.Tensor
    )
    modules = list(_candidates(model))
    with torch.no_grad():
        choices = choose([(module.weight.detach(), module.bias) for module in modules])
        for module, choice in zip(modules, choices, strict=True):
            if choice is None:
                continue
            alone = owners[module.weight.untyped_storage().data_ptr()] == 1
            members.append(_patch(module, choice, move=mode == "move" and alone))
    logger.debug("packed %d linears (%s)", len(members), mode)
    return Packed(members)


def _candidates(model: nn.Module) -> Iterator[nn.Linear]:
    for name, module in model.named_modules():
        if type(module) is not nn.Linear or "forward" in module.__dict__:
            continue
        # Adapters merge themselves into these through .data, which nothing can notice.
        if name.endswith("base_layer"):
            continue
        weight = module._parameters.get("weight")
        if (
            weight is not None
            and type(weight.data) is torch.Tensor
            and weight.dtype in _DTYPES
            and weight.device.type == "cpu"
            and weight.is_contiguous()
            and not weight.is_inference()
        ):
            yield module


class _Forward:
    """The patched ``forward``; a copy or pickle of its module gets the plain one instead."""

    __slots__ = (
        "_apply",
        "_bias",
        "_high",
        "_low",
        "_module",
        "_packed",
        "_parameters",
        "_place",
        "_version",
    )

    def __init__(self, module: nn.Linear, choice: Choice, packed: torch.Tensor) -> None:
        self._module = module
        self._parameters = module._parameters
        self._apply = choice.form.apply
        self._packed = packed
        self._bias = module.bias
        width = module.weight.shape[1]
        self._low, self._high = choice.low * width, choice.high * width
        self._version = module.weight._version
        self._place = module.weight.data_ptr()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._low <= x.numel() < self._high and not torch.is_grad_enabled():
            weight = self._parameters["weight"]
            if weight._version == self._version and weight.data_ptr() == self._place:  # type: ignore[union-attr]
                return self._apply(x, self._packed, self._bias)
        return nn.Linear.forward(self._module, x)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (nn.Linear.forward, self._module)


def _bound(
    choice: Choice, packed: torch.Tensor, bias: torch.Tensor | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    apply = choice.form.apply
    return lambda x: apply(x, packed, bias)


def _patch(module: nn.Linear, choice: Choice, move: bool) -> _Packed:
    weight, bias = module.weight, module.bias
    packed = choice.form.pack(weight.detach())
    member = _Packed(module, choice, packed)
    forward: Callable[[torch.Tensor], torch.Tensor] = _Forward(module, choice, packed)
    if move and torch.equal(choice.form.unpack(packed), weight):
        member.freed = True
        member.hook = module.register_state_dict_pre_hook(  # type: ignore[no-untyped-call]
            lambda *_: member.restore()
        )
        # One NaN seen through strides of zero: of the right shape, without memory, and impossible
        # to mistake for a weight. (A storage mapped from a file could not be shrunk.)
        weight.data = torch.full((), torch.nan, dtype=weight.dtype).expand(weight.shape)
        forward = _bound(choice, packed, bias)
    module.forward = forward  # type: ignore[method-assign,assignment]
    return member
