"""Weights in a layout that the CPU multiplies faster with few rows: in place, taken back exactly.

A step multiplies every weight matrix with 1 to 64 rows, where the library behind ``F.linear`` is
slow on the stored layout: it re-packs the matrix on every call, or walks it the wrong way. Two
layouts help, depending on machine and shape: the transpose, and oneDNN's blocked format (the op
inductor's freezing uses). Only the ``forward`` of exact ``nn.Linear`` instances is patched; names,
modules and ``state_dict`` keys stay. Knows nothing of models beyond their linears.

A weight that only its module holds is *moved* into its layout, so that packing takes no memory.
Whoever reads it from the module gets the plain weight back first, and the module computes plainly
from then on until :meth:`Packed.refresh`. A weight that somebody else holds (a tied embedding, an
optimizer) is copied, and the copy is used for as long as the weight is what it was.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import RLock
from typing import Any, TypeAlias

import torch
from torch import nn

from draftwood.runner.cpu.chosen import remembered
from draftwood.runner.cpu.layouts import Choice, Weight

logger = logging.getLogger(__name__)

Chooser: TypeAlias = Callable[[Sequence[Weight]], list[Choice | None]]

_DTYPES = (torch.float32, torch.bfloat16)
_READS = 3
"""Times a moved weight is read before it is only copied: its reader will come back."""


class Packed:
    """The patched linears of one model; :meth:`undo` takes all patches back."""

    def __init__(self, members: "list[_Forward]") -> None:
        self._members = members

    def __len__(self) -> int:
        return len(self._members)

    def refresh(self) -> None:
        """Pack what was read or changed since it was packed."""
        with torch.no_grad():
            for member in self._members:
                member.refresh()

    def undo(self) -> None:
        """Restore every weight and every ``forward``."""
        for member in self._members:
            member.undo()
        self._members = []


def pack(model: nn.Module, choose: Chooser = remembered) -> Packed:
    """Patch the linears of ``model`` that profit.

    Args:
        model: any module; only exact ``nn.Linear`` instances with plain float32 or bfloat16
            weights on the CPU are touched.
        choose: which layout each weight gets and for how many rows; by default measured once
            for a machine.

    A patched linear runs plainly while gradients are recorded, after its weight was read or changed
    and, if the plain weight is kept, for row counts where packing does not pay.
    """
    members: list[_Forward] = []
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
            if choice is not None:
                tied = owners[module.weight.untyped_storage().data_ptr()] > 1
                members.append(_Forward(module, choice, tied=tied))
    logger.debug("packed %d linears", len(members))
    return Packed(members)


def _candidates(model: nn.Module) -> Iterator[nn.Linear]:
    for name, module in model.named_modules():
        if type(module) is not nn.Linear or "forward" in module.__dict__:
            continue
        # Adapters merge themselves into these through .data, which nothing can notice.
        if name.endswith("base_layer"):
            continue
        if _fits(module._parameters.get("weight")):
            yield module


def _fits(weight: nn.Parameter | None) -> bool:
    return (
        weight is not None
        and type(weight.data) is torch.Tensor
        and weight.dtype in _DTYPES
        and weight.device.type == "cpu"
        and weight.is_contiguous()
        and not weight.is_inference()
    )


def _holders(module: nn.Module) -> int:
    """References to the module's weight, a constant of the interpreter included."""
    return sys.getrefcount(module._parameters["weight"])


_NOBODY_ELSE = _holders(nn.Linear(1, 1))


class _Forward:
    """The patched ``forward`` of a linear, and how to give the linear its plain weight back.

    A copy or pickle of the module gets the plain ``forward`` instead.

    Args:
        module: the linear.
        choice: its layout.
        tied: another module has the weight as well.
    """

    __slots__ = (
        "__weakref__",
        "_apply",
        "_bias",
        "_choice",
        "_high",
        "_lock",
        "_low",
        "_module",
        "_moved",
        "_packed",
        "_parameters",
        "_place",
        "_reads",
        "_tied",
        "_version",
    )

    def __init__(self, module: nn.Linear, choice: Choice, *, tied: bool) -> None:
        self._module = module
        self._choice = choice
        self._apply = choice.form.apply
        width = module.in_features
        self._low, self._high = choice.low * width, choice.high * width
        self._tied = tied
        self._lock = RLock()
        self._reads = 0
        self._moved = False
        self._packed: torch.Tensor | None = None
        self._parameters: dict[str, nn.Parameter | None] = module._parameters
        self._pack()
        module.forward = self  # type: ignore[method-assign,assignment]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        packed = self._packed
        if packed is not None and not torch.is_grad_enabled():
            if self._moved:
                return self._apply(x, packed, self._bias)
            if self._low <= x.numel() < self._high and self._unchanged():
                return self._apply(x, packed, self._bias)
        return nn.Linear.forward(self._module, x)

    def refresh(self) -> None:
        """Pack anew what is not packed as it is."""
        if self._moved or (self._packed is not None and self._unchanged()):
            return
        self._packed = None
        if _fits(dict.get(self._parameters, "weight")):
            self._pack()

    def undo(self) -> None:
        """Give the module its plain weight, bit for bit, and its own ``forward``."""
        self.bring_back()
        self._packed = None
        self._module.__dict__["_parameters"] = dict(self._parameters)
        del self._module.forward

    def bring_back(self) -> None:
        """Give the module its plain weight, if it was moved; the module computes with it."""
        # Normal tensors whoever reads: one made in inference mode could never be trained.
        with self._lock, torch.inference_mode(False), torch.no_grad():
            if not self._moved:
                return
            assert self._packed is not None
            plain = self._choice.form.unpack(self._packed)
            # A layout may be the plain one, of a single row for one.
            self._weight().data = plain.clone() if plain is self._packed else plain
            self._moved = False
            self._packed = None
            self._reads += 1

    def _pack(self) -> None:
        module, form = self._module, self._choice.form
        with self._lock:
            alone = not self._tied and self._reads < _READS and _holders(module) <= _NOBODY_ELSE
            weight = self._weight()
            packed = form.pack(weight.detach())
            self._bias = module.bias
            # A reader between two of these lines finds what it may use.
            self._version, self._place = weight._version, weight.data_ptr()
            self._packed = packed
            if alone and weight.grad is None and torch.equal(form.unpack(packed), weight):
                if not isinstance(self._parameters, _Watched):
                    self._parameters = _Watched(self._parameters, self.bring_back)
                    module.__dict__["_parameters"] = self._parameters
                # One NaN seen through strides of zero: of the right shape, without memory, and
                # impossible to mistake for a weight. (A mapped storage could not be shrunk.)
                weight.data = torch.full((), torch.nan, dtype=weight.dtype).expand(weight.shape)
                self._moved = True

    def _weight(self) -> nn.Parameter:
        """The parameter as it is, moved or not."""
        weight = dict.__getitem__(self._parameters, "weight")
        assert weight is not None
        return weight

    def _unchanged(self) -> bool:
        weight = dict.get(self._parameters, "weight")
        return (
            weight is not None
            and weight._version == self._version
            and weight.data_ptr() == self._place
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (nn.Linear.forward, self._module)


class _Watched(dict[str, nn.Parameter | None]):
    """A module's parameters; the plain weight is brought back before anybody reads or replaces one.

    Args:
        parameters: the module's.
        bring_back: brings the plain weight back.
    """

    __slots__ = ("_bring_back",)

    def __init__(
        self, parameters: dict[str, nn.Parameter | None], bring_back: Callable[[], None]
    ) -> None:
        super().__init__(parameters)
        self._bring_back = bring_back

    def __getitem__(self, name: str) -> nn.Parameter | None:
        self._bring_back()
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: nn.Parameter | None) -> None:
        self._bring_back()
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self._bring_back()
        super().__delitem__(name)

    def __iter__(self) -> Iterator[str]:
        # dict(self) and {**self} would copy the values past __getitem__ if this were inherited.
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        self._bring_back()
        return super().get(name, default)

    def items(self) -> Any:
        self._bring_back()
        return super().items()

    def values(self) -> Any:
        self._bring_back()
        return super().values()

    def pop(self, *args: Any) -> Any:
        self._bring_back()
        return super().pop(*args)

    def popitem(self) -> tuple[str, nn.Parameter | None]:
        self._bring_back()
        return super().popitem()

    def setdefault(self, name: str, default: Any = None) -> Any:
        self._bring_back()
        return super().setdefault(name, default)

    def update(self, *args: Any, **kwargs: Any) -> None:
        self._bring_back()
        super().update(*args, **kwargs)

    def copy(self) -> dict[str, nn.Parameter | None]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
