"""The tensors of the simulated device: the device is pretended, the numbers are real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

if TYPE_CHECKING:
    from tests.simulated_cuda.device import SimulatedCuda

CUDA = torch.device("cuda", 0)

active: list[SimulatedCuda] = []
"""The devices in force, the innermost last."""


class SimulatedTensor(torch.Tensor):
    """A tensor that says it is on ``cuda:0``; ``numbers`` holds its numbers on the CPU."""

    numbers: torch.Tensor

    @staticmethod
    def __new__(cls, numbers: torch.Tensor) -> SimulatedTensor:
        """Wrap a CPU tensor, whose memory is shared."""
        made: SimulatedTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=CUDA,
        )
        made.numbers = numbers
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"SimulatedTensor({self.numbers!r})"

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Refused, as by CUDA."""
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    def __array__(self, dtype: Any = None) -> NoReturn:
        self.numpy()

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention and active:
            return active[-1].attend(*args, **given)
        if func is torch.Tensor.tolist:  # not offered for subclasses
            return args[0].cpu().tolist()
        if func is torch.Tensor.new_tensor:
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype, "device": CUDA} | given)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            args = (args[0], _host_index(args[1]), *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **given)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not active:
            raise RuntimeError(f"{func}: a simulated tensor is used outside of its device")
        return active[-1].run(func, args, kwargs or {})


def _host_index(index: Any) -> Any:
    """An index whose lists and arrays are host tensors, as torch makes them before it copies."""
    if isinstance(index, tuple):
        return tuple(map(_host_index, index))
    if isinstance(index, (list, range)):
        return torch.from_numpy(np.asarray(index))
    return torch.from_numpy(index) if isinstance(index, np.ndarray) and index.ndim else index


def unwrapped(value: Any) -> Any:
    """The CPU tensor of a simulated one; anything else as it is."""
    return value.numbers if isinstance(value, SimulatedTensor) else value
