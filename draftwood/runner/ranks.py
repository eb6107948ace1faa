"""The processes that run one model together, each with a part of its weights: tensor parallelism.

transformers divides the weights when it loads a model with a plan for that. The modules of its
layers exchange what they compute, so that hidden states and logits are whole in every process. Each
process drafts and accepts by itself, and all come to the same tokens. Two things see to that: what
is timed is taken from the first process, and before a forward all of them compare its tokens. A
process with other tokens would give the others wrong sums, or wait for them forever.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from draftwood.errors import DraftwoodError
from draftwood.models.quantising import is_quantised

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

M = TypeVar("M", bound=nn.Module)

_AXIS = "tp"
"""The name that transformers gives to the processes among which it divides a layer."""


class Ranks:
    """The processes of one model. Every method is called by all of them, in the same order.

    Args:
        group: the processes.
        device: of this one's part of the model.

    Attributes:
        size: their number.
    """

    def __init__(self, group: "ProcessGroup", device: torch.device) -> None:
        self.size = dist.get_world_size(group)
        self._group, self._device = group, device
        self._modules: dict[nn.Module, nn.Module] = {}
        self._gathered: dict[int, nn.Parameter] = {}  # by the id of the divided one

    def of_first(self, numbers: Sequence[float]) -> list[float]:
        """The first process's numbers, in each of them."""
        sent = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        dist.broadcast(sent, group=self._group, group_src=0)
        found: list[float] = sent.tolist()
        return found

    def compare(self, parts: Iterable[bytes]) -> None:
        """Check that what a process is about to do is what the others are.

        Args:
            parts: bytes that tell it from anything else.

        Raises:
            DraftwoodError: in all processes, if one of them has other bytes.
        """
        digest = int.from_bytes(blake2b(b"|".join(parts), digest_size=7).digest())
        bounds = torch.tensor([digest, -digest], device=self._device)
        dist.all_reduce(bounds, dist.ReduceOp.MAX, group=self._group)
        most, least = bounds.tolist()
        if most != -least:
            raise DraftwoodError(
                f"the {self.size} processes of this model are not at the same tokens: each of them "
                "must decode the same requests, in the same order, with the same settings and "
                "seeds (of generate, torch.manual_seed), and cancel the same ones"
            )

    def whole(self, module: M) -> M:
        """A module with all of its weights, made once: a copy of one whose weights are divided."""
        from torch.distributed.tensor import DTensor

        if not any(isinstance(each, DTensor) for each in module.parameters(recurse=False)):
            return module
        if module not in self._modules:
            copied = copy(module)
            # transformers has replaced the divided module's forward by one that exchanges sums.
            copied.__dict__.pop("forward", None)
            copied.__dict__["_parameters"] = {
                name: self._whole(each) if isinstance(each, DTensor) else each
                for name, each in module._parameters.items()
            }
            self._modules[module] = copied
        found: M = self._modules[module]  # type: ignore[assignment]
        return found

    def _whole(self, divided: "DTensor") -> nn.Parameter:
        if id(divided) not in self._gathered:
            with torch.no_grad():
                values = divided.full_tensor()
            self._gathered[id(divided)] = nn.Parameter(values, requires_grad=False)
        return self._gathered[id(divided)]


def ranks_of(model: Any, device: torch.device) -> Ranks | None:
    """The processes among which a model is divided; None if this one has all of it.

    Raises:
        DraftwoodError: it is divided in another way than by tensor parallelism, or is quantised.
    """
    if not dist.is_available() or not dist.is_initialized():
        return None
    meshes = _meshes(model)
    if not meshes:
        return None
    kind = type(model).__name__
    if len(meshes) > 1 or not _is_tensor_parallel(model, meshes[0]):
        raise DraftwoodError(
            f"{kind} is divided among processes in another way than by transformers' tensor "
            "parallelism (by layers, by experts or by FSDP): load it with tp_plan='auto' alone"
        )
    if getattr(model, "is_quantized", False) or is_quantised(model):
        raise DraftwoodError(
            f"{kind} is quantised and divided among processes, which has not been checked: load it "
            "in bfloat16, or on one device"
        )
    return Ranks(meshes[0].get_group(), device)


def _meshes(model: Any) -> "list[DeviceMesh]":
    """The processes among which parameters or layers are divided, in all ways that occur."""
    from torch.distributed.tensor import DTensor

    found = {each.device_mesh for each in model.parameters() if isinstance(each, DTensor)}
    # Of transformers; it tells of layers as well, whose parameters are plain ones.
    whole = getattr(model, "_device_mesh", None)
    if whole is not None and whole.size() > max((mesh.size() for mesh in found), default=1):
        found.add(whole)
    return list(found)


def _is_tensor_parallel(model: Any, mesh: "DeviceMesh") -> bool:
    same = getattr(model, "tp_size", None) == mesh.size()
    return same and mesh.ndim == 1 and mesh.mesh_dim_names in (None, (_AXIS,))
