"""Linears that read the same input, as one product.

A product with few rows takes as long as its weight takes to be read, plus the time to begin, and a
small weight does not fill a GPU. The weights become views of one tensor, so that they take no more
memory and the modules stay what they are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from draftwood.runner.cpu.watched import acting


class JoinedLinears:
    """Linears that read the same input; see :func:`join_linears`.

    Args:
        linears: that :func:`joinable` accepts.
    """

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        self._linears = linears
        self._sizes = [each.out_features for each in linears]
        self._weight = torch.cat([each.weight.detach() for each in linears])
        biases = [each.bias.detach() for each in linears if each.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        for each, part in zip(linears, self._weight.split(self._sizes), strict=True):  # type: ignore[no-untyped-call]
            each.weight.data = part
        if self._bias is not None:
            for each, part in zip(linears, self._bias.split(self._sizes), strict=True):  # type: ignore[no-untyped-call]
                each.bias.data = part
        self._places = self._found()

    def __call__(self, x: Tensor) -> Sequence[Tensor]:
        """The output of each linear for ``[n, in]``, views ``[n, out]``."""
        if self._unchanged():
            return linear(x, self._weight, self._bias).split(self._sizes, dim=-1)  # type: ignore[no-untyped-call,no-any-return]
        return [each(x) for each in self._linears]

    @property
    def is_cuda(self) -> bool:
        """Whether the weights are on a GPU."""
        return self._weight.is_cuda

    @torch.inference_mode(mode=False)
    def undo(self) -> None:
        """Give each linear a weight of its own."""
        for each, place in zip(self._linears, self._places, strict=True):
            if place == _place(each):
                for parameter in each.parameters():
                    parameter.data = parameter.data.clone()

    def _unchanged(self) -> bool:
        return self._found() == self._places and not any(
            "forward" in each.__dict__
            or acting(each._forward_hooks)
            or acting(each._forward_pre_hooks)
            for each in self._linears
        )

    def _found(self) -> list[tuple[int | None, int | None]]:
        return [*map(_place, self._linears)]


def _place(module: nn.Linear) -> tuple[int | None, int | None]:
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
    return (
        None if weight is None else weight.data_ptr(),
        None if bias is None else bias.data_ptr(),
    )


def joinable(linears: Sequence[nn.Module | None]) -> bool:
    """Whether linears are plain ones, of one kind, whose weights nothing else holds."""
    if not all(type(each) is nn.Linear and "forward" not in each.__dict__ for each in linears):
        return False
    weights = [each._parameters.get("weight") for each in linears if each is not None]
    if not all(
        weight is not None
        and type(weight.data) is Tensor
        and weight.is_contiguous()
        and weight.untyped_storage().nbytes() == weight.nbytes
        and not weight.is_inference()
        for weight in weights
    ):
        return False
    kinds = {(w.dtype, w.device, w.shape[1]) for w in weights if w is not None}
    biases = {each._parameters.get("bias") is None for each in linears if each is not None}
    return len(kinds) == len(biases) == 1 and len({id(weight) for weight in weights}) == len(
        weights
    )


def join_linears(linears: Sequence[nn.Module | None]) -> JoinedLinears | None:
    """Make the weights of linears views of one tensor; None if they are not plain ones.

    For a moment their weights take twice the memory; without it, None.
    """
    if not joinable(linears):
        return None
    try:
        # A weight that is made in inference mode could not be changed in place afterwards.
        with torch.inference_mode(mode=False), torch.no_grad():
            found = JoinedLinears([each for each in linears if isinstance(each, nn.Linear)])
    except torch.OutOfMemoryError:
        return None
    if found.is_cuda:
        # The weights before were blocks of their own, which fit nothing else of the model.
        torch.cuda.empty_cache()
    return found
