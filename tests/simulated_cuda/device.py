"""The simulated device: runs operations, refuses what CUDA refuses, and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from draftwood.kernels.gpu import LayerKernels, Seen
from draftwood.runner import attach, gpu_layers
from tests.factories.interpreted_attention import interpreted_attention
from tests.factories.plain_layers import PLAIN
from tests.simulated_cuda.copies import CopiesUnderWay
from tests.simulated_cuda.graphs import SimulatedGraphs
from tests.simulated_cuda.guard import load_guard
from tests.simulated_cuda.models import to_simulated
from tests.simulated_cuda.tensors import SimulatedTensor, active, unwrapped
from tests.simulated_cuda.work import Work, caller

_WAITING = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense",
        "_unique2",
        "equal",
        "is_nonzero",
        "item",
        "masked_select",
        "nonzero",
        "repeat_interleave",
        "unique_consecutive",
        "unique_dim",
    )
)
"""Operations whose result, or its size, the host must know."""

_WITHOUT_KERNEL = frozenset(
    f"aten::{name}"
    for name in (
        "_reshape_alias",
        "_unsafe_view",
        "alias",
        "as_strided",
        "detach",
        "diagonal",
        "empty",
        "empty_like",
        "empty_strided",
        "expand",
        "lift_fresh",
        "narrow",
        "new_empty",
        "new_empty_strided",
        "permute",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unfold",
        "unsqueeze",
        "view",
    )
)
"""Views and allocations."""

_INDEXING = frozenset(
    f"aten::{name}"
    for name in ("_index_put_impl_", "_unsafe_index", "index", "index_put", "index_put_")
)

_WHOLE = _WAITING | {"aten::unbind"}
"""Not taken apart into other operations."""


class _Dispatch(TorchDispatchMode):
    """Hands every operation to a device."""

    def __init__(self, device: SimulatedCuda) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self._device.run(func, args, kwargs or {})


class SimulatedCuda:
    """A context in which ``cuda:0`` is simulated.

    Args:
        kernels: Triton runs there, and graphs are recorded.

    Attributes:
        work: what the device was asked to do.
    """

    def __init__(self, *, kernels: bool = False) -> None:
        self.work = Work()
        self._kernels = kernels
        self._copies = CopiesUnderWay(self.work)
        self._patches = ExitStack()

    def __enter__(self) -> SimulatedCuda:
        load_guard()
        torch_tensor, as_tensor, module_to = torch.tensor, torch.as_tensor, nn.Module.to
        for owner, name, value in (
            (torch, "tensor", _on_device(torch_tensor)),
            (torch, "as_tensor", _on_device(as_tensor)),
            (nn.Module, "to", _module_to(module_to)),
            (torch.cuda, "_lazy_init", lambda: None),
            (torch.cuda, "get_device_name", lambda *_: "simulated"),
            (torch.cuda, "synchronize", lambda *_: self._copies.wait()),
            (torch.cuda, "Event", self._copies.event),
            (torch.cuda, "current_stream", lambda *_: None),
            (attach, "attention_on", lambda *_: self.attend_trees if self._kernels else None),
            (attach, "CudaGraphs", lambda _: SimulatedGraphs(self._copies)),
            (gpu_layers, "layer_kernels", lambda _: self._layer_kernels()),
        ):
            self._patches.enter_context(patch.object(owner, name, value))
        active.append(self)
        self._patches.callback(active.remove, self)
        self._patches.enter_context(_Dispatch(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.close()

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation of which an argument or the result may be on the device."""
        name = func._schema.name
        if name not in _WHOLE and func._can_decompose():
            with _Dispatch(self):
                return func.decompose(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        on_host = [tensor for tensor in tensors if not isinstance(tensor, SimulatedTensor)]
        device = kwargs.get("device")
        if len(on_host) == len(tensors) and (device is None or torch.device(device).type != "cuda"):
            return self._on_host(func, args, kwargs)
        if name == "aten::_to_copy":
            return self._to_copy(func, *args, **kwargs)
        if name == "aten::copy_":
            return self._copy_(func, *args, **kwargs)
        if name in _INDEXING:
            self._take_index(args)
        else:
            _refuse_mixed(name, on_host)
        if name in _WAITING:
            self._copies.wait()
        if device is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        operation = partial(func, *tree_map(unwrapped, args), **tree_map(unwrapped, kwargs))
        found = operation()
        if name not in _WITHOUT_KERNEL:
            self._copies.did(operation, found)
        return _as_here(func._schema, args, kwargs, found)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """``scaled_dot_product_attention``, one kernel; slow choices of torch are faults."""
        given = [each for each in (query, key, value, attn_mask) if each is not None]
        on_host = [each for each in given if not isinstance(each, SimulatedTensor)]
        _refuse_mixed("attention", on_host)
        grouped = options.get("enable_gqa", False) and query.shape[1] != key.shape[1]
        if grouped and (attn_mask is not None or query.dtype == torch.float32):
            self.work.faults["attention repeats keys: grouped queries without flash"] += 1
        if torch.backends.cuda.cudnn_sdp_enabled():  # type: ignore[no-untyped-call]
            self.work.faults["attention may plan for every length: cuDNN is not ruled out"] += 1
        given_here = map(unwrapped, (query, key, value, attn_mask))
        found: torch.Tensor = self._run_kernel(
            partial(nn.functional.scaled_dot_product_attention, *given_here, **options)
        )
        return found

    def attend_trees(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        seen: Seen,
        **options: Any,
    ) -> torch.Tensor:
        """What stands in for ``attend_trees`` of ``kernels/gpu_attention.py``: it, interpreted."""
        tensors = (queries, keys, values, *seen[:8])
        _refuse_mixed("attention", [t for t in tensors if not isinstance(t, SimulatedTensor)])
        here = (*map(unwrapped, tensors[:3]), Seen(*map(unwrapped, seen)))
        given = {name: unwrapped(value) for name, value in options.items()}
        found: torch.Tensor = self._run_kernel(partial(interpreted_attention(), *here, **given))
        return found

    def _layer_kernels(self) -> LayerKernels | None:
        """What stands in for ``kernels/gpu_layers.py``: tensor operations, each as one kernel."""
        if not self._kernels:
            return None
        return LayerKernels(*(partial(self._as_one, function) for function in PLAIN))

    def _as_one(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        given = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        _refuse_mixed("a layer", [t for t in given if not isinstance(t, SimulatedTensor)])
        return self._run_kernel(partial(function, *tree_map(unwrapped, args), **options))

    def _run_kernel(self, kernel: Callable[[], Any]) -> Any:
        """Run a function of CPU tensors as one kernel."""
        with torch._C._DisableTorchDispatch():
            found = kernel()
            self._copies.did(kernel, found)
            return tree_map(SimulatedTensor, found)

    def _on_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation on host tensors; there is pinned memory."""
        name = func._schema.name
        if name == "aten::is_pinned":
            return self._copies.pinned(args[0])
        if name == "aten::_pin_memory":
            return self._copies.pin(args[0].clone())
        if not kwargs.get("pin_memory"):
            return func(*args, **kwargs)
        return self._copies.pin(func(*args, **{**kwargs, "pin_memory": False}))

    def _to_copy(
        self,
        func: Any,
        source: torch.Tensor,
        *,
        device: Any = None,
        non_blocking: bool = False,
        pin_memory: bool | None = None,
        **changed: Any,
    ) -> torch.Tensor:
        there = source.device if device is None else torch.device(device)
        if not isinstance(source, SimulatedTensor):
            self._copies.upload(source, non_blocking=non_blocking)
            return SimulatedTensor(func(source, **changed))
        operation = partial(func, source.numbers, **changed)
        found = operation()
        if there.type == "cuda" or changed.get("dtype") not in (None, source.dtype):
            self._copies.did(operation, found)
        if there.type == "cuda":
            return SimulatedTensor(found)
        self._copies.download(found, into=found, non_blocking=non_blocking)
        return found  # type: ignore[no-any-return]

    def _copy_(
        self,
        func: Any,
        target: torch.Tensor,
        source: torch.Tensor,
        non_blocking: bool = False,
    ) -> torch.Tensor:
        if not isinstance(target, SimulatedTensor):
            self._copies.download(unwrapped(source), into=target, non_blocking=non_blocking)
            return target
        operation = partial(func, target.numbers, unwrapped(source))
        if isinstance(source, SimulatedTensor) or source.dim() == 0:
            self._copies.did(operation, operation())
        else:
            pieces = not target.is_contiguous()
            self._copies.upload(source, non_blocking=non_blocking, in_pieces=pieces)
            operation()
        return target

    def _take_index(self, args: tuple[Any, ...]) -> None:
        """Count what indices take; a host tensor cannot be indexed by the device's."""
        if not isinstance(args[0], SimulatedTensor):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        for index in args[1]:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                self._copies.wait()
            if isinstance(index, torch.Tensor) and not isinstance(index, SimulatedTensor):
                self._copies.upload(index, non_blocking=False)


def _refuse_mixed(name: str, on_host: Sequence[torch.Tensor]) -> None:
    if any(tensor.dim() for tensor in on_host):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"cuda:0 and cpu! (in {name}, called by {caller()})"
        )


def _as_here(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> Any:
    """The result of an operation: arguments that it wrote to, and else tensors of the device."""
    written: dict[str, Any] = {}
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            written |= dict.fromkeys(argument.alias_info.before_set, value)
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    first = args[0] if args else None
    # As with real tensors: a view of a normal tensor is one, even if made in inference mode.
    inference = torch.is_inference_mode_enabled()
    if views and isinstance(first, torch.Tensor):
        inference = first.is_inference()

    def wrapped(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with torch.inference_mode(inference):
            return SimulatedTensor(value)

    def result(returned: Any, value: Any) -> Any:
        if returned.alias_info is not None and returned.alias_info.is_write:
            for name in returned.alias_info.before_set:
                if name in written:
                    return written[name]
        return tree_map(wrapped, value)

    if len(schema.returns) == 1:
        return result(schema.returns[0], found)
    if not schema.returns:
        return None
    return tuple(result(r, value) for r, value in zip(schema.returns, found, strict=True))


def _on_device(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``torch.tensor`` and the like: make the tensor on the host and upload it."""

    def made(data: Any, *, device: Any = None, **given: Any) -> torch.Tensor:
        if device is None or torch.device(device).type != "cuda":
            return make(data, device=device, **given)
        return make(data, **given).to(device)

    return made


def _module_to(original: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """``Module.to``: to the simulated device if it is named."""

    def to(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        device, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type != "cuda":
            return original(self, *args, **kwargs)
        rest = [each for each in args if isinstance(each, torch.dtype)]
        if rest or kwargs.get("dtype") is not None:
            self = original(self, kwargs.get("dtype", *rest))
        return to_simulated(self)

    return to
