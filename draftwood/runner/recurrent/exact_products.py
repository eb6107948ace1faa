"""Products of float32 in float32, whatever precision was asked of the rest of the model.

``torch.set_float32_matmul_precision("high")`` lets a GPU round the factors of such products to 10
bits (TF32), and ``"medium"`` a CPU to 7 (bfloat16). A state carries such errors from step to step.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

EXACT = ("ieee", "none")
"""Values of ``fp32_precision`` that round no factors."""


def _settings() -> tuple[Any, ...]:
    """Objects whose ``fp32_precision`` decides for products, on a GPU and on a CPU."""
    on_a_cpu: Any = torch.backends.mkldnn
    return torch.backends.cuda.matmul, on_a_cpu.matmul


@contextmanager
def exact_products() -> Iterator[None]:
    """A context or decorator in which products of float32 are exact up to float32's rounding."""
    reduced = [each for each in _settings() if each.fp32_precision not in EXACT]
    if not reduced:
        yield
        return
    with ExitStack() as undo:
        for setting in reduced:
            undo.callback(_restore, setting, setting.fp32_precision)
            setting.fp32_precision = "ieee"
        yield


def _restore(setting: Any, before: str) -> None:
    """Give a setting its value back, which may be that of a more general setting."""
    setting.fp32_precision = "none"
    if setting.fp32_precision != before:
        setting.fp32_precision = before
