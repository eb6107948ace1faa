"""Packs linear weights into a layout that the CPU multiplies faster with few rows; reversible.

A step multiplies every weight matrix with 1 to 64 rows. The library behind ``F.linear`` is slow
there on the stored layout: it re-packs the matrix on every call, or reads it in the wrong order.
Four ways help, depending on machine and shape: the transpose, oneDNN's blocked format (used by
inductor's freezing), and compiled code for the stored layout (:mod:`draftwood.runner.cpu.rows`) or
for panels (:mod:`draftwood.runner.cpu.panels`).
Only the ``forward`` of exact ``nn.Linear`` instances is patched. Names, modules and ``state_dict``
keys stay.

A weight that only its module references is *moved* into the layout, so packing takes no memory.
Reading such a weight from the module restores the plain weight first. The module then computes with
the plain weight until :meth:`PackedLinear.refresh`. A weight with other references (a tied
embedding, an optimizer) is copied. The copy is used as long as the weight is unchanged. Compiled
code for the stored layout needs neither, but weights in large pages
(:mod:`draftwood.runner.cpu.aligned`); it takes the place of panels where a weight cannot be moved,
but for an embedding's that is not too large to be copied.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from threading import RLock
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from draftwood.kernels.functions import casts
from draftwood.runner.cpu.aligned import align
from draftwood.runner.cpu.layout_cache import cached_layouts
from draftwood.runner.cpu.layouts import ROWS, LayoutChoice, Linear, Weight, WeightLayout
from draftwood.runner.patched import PatchedForward

logger = logging.getLogger(__name__)

Chooser: TypeAlias = Callable[[Sequence[Weight]], list[LayoutChoice | None]]

_DTYPES = (torch.float32, torch.bfloat16)
_COPIED = 1 << 28
"""Bytes of an embedding's weight up to which it is copied into panels."""
_READS = 3
"""Reads after which a weight is copied instead of moved: further reads are likely."""


def pack(
    model: nn.Module, choose: Chooser = cached_layouts, plain: Collection[nn.Module] = ()
) -> "list[PackedLinear]":
    """Patch the linears of ``model`` that become faster.

    Args:
        model: any module. Only exact ``nn.Linear`` instances with plain float32 or bfloat16
            weights on the CPU are patched.
        choose: chooses each weight's layout and row counts; by default timed once per machine.
        plain: linears that are left as they are.

    A patched linear uses the plain weight while gradients are recorded, under ``torch.autocast`` to
    another dtype, after its weight was read or changed and, if the weight was copied, for row
    counts at which the layout is slower.
    """
    packed: list[PackedLinear] = []
    modules = [module for module in _candidates(model) if module not in plain]
    _move_into_large_pages(model)
    owners = Counter(
        parameter.untyped_storage().data_ptr()
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None and type(parameter.data) is torch.Tensor
    )
    embedded = {
        id(module._parameters.get("weight"))
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and not _adapted(name)
    }
    with torch.no_grad():
        choices = choose([(module.weight.detach(), module.bias) for module in modules])
    for module, choice in zip(modules, choices, strict=True):
        if choice is not None:
            tied = owners[module.weight.untyped_storage().data_ptr()] > 1
            embedding = id(module.weight) in embedded
            packed.append(PackedLinear(module, choice, tied=tied, embedding=embedding))
    return packed


def _move_into_large_pages(model: nn.Module) -> None:
    """Move the model's weights; no reference to one is left, as who holds it decides on packing."""
    every = [*model.parameters(), *model.buffers()]
    plain = [each for each in every if type(each.data) is torch.Tensor]
    moved = align([each for each in model.parameters() if _plain_on_cpu(each)], plain)
    logger.debug("%.0f MB of weights moved into large pages", moved / 1e6)


def _candidates(model: nn.Module) -> Iterator[nn.Linear]:
    for name, module in model.named_modules():
        if type(module) is not nn.Linear or "forward" in module.__dict__:
            continue
        if not _adapted(name) and _fits(module._parameters.get("weight")):
            yield module


def _adapted(name: str) -> bool:
    """Whether adapters merge into a module of this name, through .data, which cannot be noticed."""
    return name.endswith("base_layer")


def _fits(weight: nn.Parameter | None) -> bool:
    return (
        weight is not None
        and _plain_on_cpu(weight)
        and weight.dtype in _DTYPES
        and weight.shape[1] > 0
    )


def _plain_on_cpu(weight: torch.Tensor) -> bool:
    return (
        type(weight.data) is torch.Tensor
        and weight.device.type == "cpu"
        and weight.is_contiguous()
        and not weight.is_inference()
    )


def _holders(module: nn.Module) -> int:
    """Number of references to the module's weight, plus a constant of the interpreter."""
    return sys.getrefcount(module._parameters["weight"])


_ONE_HOLDER = _holders(nn.Linear(1, 1))


class _Packed(NamedTuple):
    """A weight in a layout.

    Attributes:
        weight: in the layout.
        linear: the product with it, which may hold it too.
        source: the weight that was copied, held so that no other one gets its place; None: none
            was copied.
    """

    weight: torch.Tensor
    linear: Linear
    source: torch.Tensor | None


class PackedLinear(PatchedForward):
    """The ``forward`` of a linear, with its weight in another layout.

    Args:
        module: the linear.
        choice: its layout.
        tied: whether another module has the same weight.
        embedding: whether an embedding has the same parameter, so that changes of it are noticed.

    Attributes:
        packs: how often a weight was packed.
    """

    def __init__(
        self, module: nn.Linear, choice: LayoutChoice, *, tied: bool, embedding: bool = False
    ) -> None:
        self._choice, self._layout = choice, choice.layout
        width = module.in_features
        self._low, self._high = choice.low * width, choice.high * width
        self._tied, self._embedding = tied, embedding
        self._lock = RLock()
        self.packs = self._reads = 0
        self._moved = False
        self._packed: _Packed | None = None
        self._parameters: dict[str, nn.Parameter | None] = module._parameters
        super().__init__(module)
        self._pack()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        packed = self._packed  # once, as another thread may restore the weight
        if (
            packed is not None
            and not torch.is_grad_enabled()
            and not casts(packed.weight.dtype)
            and (self._moved or (self._low <= x.numel() < self._high and self._unchanged()))
        ):
            return packed.linear(x, dict.get(self._parameters, "bias"))
        return nn.Linear.forward(self._module, x)

    @property
    def module(self) -> nn.Linear:
        """The linear."""
        return self._module  # type: ignore[no-any-return]

    @property
    def low(self) -> int:
        """Least number of rows for which the layout is used."""
        return self._choice.low

    @property
    def high(self) -> int:
        """First number of rows for which it is not used any more."""
        return self._choice.high

    @property
    def layout(self) -> WeightLayout:
        """The layout of the packed weight."""
        return self._layout

    @property
    def packed(self) -> torch.Tensor | None:
        """The packed weight; None from when the weight was read or changed to :meth:`refresh`."""
        return None if self._packed is None else self._packed.weight

    @property
    def copied(self) -> bool:
        """Whether the packed weight is a copy, which is not used once the module's has changed."""
        return self._packed is not None and not (self._moved or self.layout.stored)

    @property
    def shape(self) -> torch.Size:
        """Outputs and inputs."""
        return self._weight().shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the weight."""
        return self._weight().dtype

    @property
    def layout_name(self) -> str:
        """The name of the layout."""
        return self.layout.name

    def refresh(self) -> None:
        """Pack the weight again unless the packed one is up to date."""
        if self._moved or (self._packed is not None and self._unchanged()):
            return
        self._packed = None
        if _fits(dict.get(self._parameters, "weight")):
            self._pack()

    def undo(self) -> None:
        """Restore the module's plain weight, bit for bit, and its own ``forward``."""
        self.restore()
        self._packed = None
        self._module.__dict__["_parameters"] = dict(self._parameters)
        super().undo()

    def restore(self) -> None:
        """Restore the plain weight if it was moved; the module then computes with it."""
        # Always a normal tensor: one made in inference mode could never be trained.
        with self._lock, torch.inference_mode(False), torch.no_grad():
            if not self._moved:
                return
            assert self._packed is not None
            packed = self._packed.weight
            plain = self.layout.unpack(packed)
            # The layouts may coincide, for example for a single row.
            self._weight().data = plain.clone() if plain is packed else plain
            self._moved = False
            self._packed = None
            self._reads += 1

    @torch.no_grad()
    def _pack(self) -> None:
        module, layout = self._module, self._choice.layout
        with self._lock:
            alone = not self._tied and self._reads < _READS and _holders(module) <= _ONE_HOLDER
            weight = self._weight()
            moves = alone and weight.grad is None and not layout.stored
            copies = self._embedding and weight.nbytes <= _COPIED
            if layout.moved and not ((moves or copies) and layout.fits(weight)):
                layout, moves = ROWS, False
            given = weight.detach()
            self._version, self._place = weight._version, weight.data_ptr()
            packed = layout.pack(given)
            moves = moves and torch.equal(layout.unpack(packed), weight)
            if layout.moved and not (moves or copies):  # it holds NaN
                layout, packed = ROWS, given
            self._layout = layout
            # In this order, so that a concurrent reader always finds a usable state.
            source = None if moves or layout.stored else given
            self._packed = _Packed(packed, layout.linear(packed), source)
            self.packs += 1
            if moves:
                if not isinstance(self._parameters, _RestoringDict):
                    self._parameters = _RestoringDict(self._parameters, self.restore)
                    module.__dict__["_parameters"] = self._parameters
                # A NaN expanded to the weight's shape takes no memory and cannot be mistaken for a
                # weight. (A memory-mapped storage could not be shrunk.)
                absent = torch.full((), torch.nan, dtype=weight.dtype, device="cpu")
                weight.data = absent.expand(weight.shape)
                self._moved = True

    def _weight(self) -> nn.Parameter:
        """The parameter in its present state, moved or not."""
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


class _RestoringDict(dict[str, nn.Parameter | None]):
    """A module's parameters. Any access restores the plain weight first.

    Args:
        parameters: the module's.
        restore: restores the plain weight.
    """

    __slots__ = ("_restore",)

    def __init__(
        self, parameters: dict[str, nn.Parameter | None], restore: Callable[[], None]
    ) -> None:
        super().__init__(parameters)
        self._restore = restore

    def __iter__(self) -> Iterator[str]:
        # If this were inherited, dict(self) and {**self} would copy values without __getitem__.
        return super().__iter__()

    def copy(self) -> dict[str, nn.Parameter | None]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _restoring(access: Callable[..., Any]) -> Callable[..., Any]:
    def restore_first(self: _RestoringDict, *args: Any, **kwargs: Any) -> Any:
        self._restore()
        return access(self, *args, **kwargs)

    return restore_first


for _access in (
    dict.__getitem__,
    dict.__setitem__,
    dict.__delitem__,
    dict.get,
    dict.items,
    dict.values,
    dict.pop,
    dict.popitem,
    dict.setdefault,
    dict.update,
):
    setattr(_RestoringDict, _access.__name__, _restoring(_access))
