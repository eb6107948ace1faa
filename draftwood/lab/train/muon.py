"""Muon, an optimiser for the 2-D matrices of hidden layers.

Muon (K. Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) replaces each momentum
matrix by a nearly orthogonal one with the same singular vectors, with five steps of a quintic
Newton-Schulz iteration.

`torch.optim.Muon` runs the iteration in bfloat16, one matrix at a time, which takes a third of a
training step on processors without bfloat16 instructions. This one takes the dtype as an argument
and batches matrices of one shape; otherwise the update is the same (a test compares the two).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from draftwood.errors import DraftwoodError

_QUINTIC = (3.4445, -4.775, 2.0315)
_NORM_FLOOR = 1e-7
_AT_ONCE = 4
_STEPS = 5

Spread = Callable[[Callable[[Tensor], Tensor], Iterable[Tensor]], Iterable[Tensor]]


@torch.no_grad()
def orthogonalise(matrices: Tensor) -> Tensor:
    """Move the singular values of ``matrices`` [n, rows, cols] towards 1, in their dtype.

    The result's singular values lie roughly in 0.7 to 1.2: the quintic is tuned for speed.
    """
    a, b, c = _QUINTIC
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=_NORM_FLOOR)
    for _ in range(_STEPS):
        gram = x @ x.transpose(1, 2)
        mixed = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, mixed, x, beta=a)
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """Optimiser with orthogonalised momentum, for 2-D parameters.

    Args:
        params: 2-D parameters; others raise DraftwoodError.
        lr: step size; an update has a spectral norm of about ``lr``, times ``sqrt(rows / cols)`` if
            a matrix has more rows than columns.
        momentum: decay of the (Nesterov) momentum.
        weight_decay: decoupled; a step shrinks weights by ``lr * weight_decay``.
        dtype: of the iteration; None: that of the weights.
        spread: ``map``, or a thread pool's ``map``; the result does not depend on it.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        dtype: torch.dtype | None = None,
        spread: Spread = map,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._dtype = dtype
        self._spread = spread
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise DraftwoodError(
                        f"Muon takes 2-D matrices, got shape {tuple(parameter.shape)}; "
                        "give other parameters to AdamW."
                    )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Update the parameters that have a ``grad``."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            bundles = [
                parameters[start : start + _AT_ONCE]
                for parameters in by_shape.values()
                for start in range(0, len(parameters), _AT_ONCE)
            ]
            stacks = [
                torch.stack([self._momentum(p, group["momentum"]) for p in bundle]).to(self._dtype)
                for bundle in bundles
            ]
            updates = self._spread(orthogonalise, stacks)
            for bundle, update in zip(bundles, updates, strict=True):
                rows, cols = bundle[0].shape
                rate = group["lr"] * max(1.0, rows / cols) ** 0.5
                for parameter, matrix in zip(bundle, update, strict=True):
                    parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                    parameter.add_(matrix, alpha=-rate)

    def _momentum(self, parameter: Tensor, momentum: float) -> Tensor:
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum"]
        buffer.lerp_(gradient, 1.0 - momentum)
        return gradient.lerp(buffer, momentum)
