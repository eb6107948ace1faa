"""The kernels between a layer's products compute what the modeling files do."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwood.kernels.gpu import LayerKernels, layer_kernels
from draftwood.runner.norm_formulas import Formula, early, late
from tests.factories.plain_layers import PLAIN
from tests.kernels.test_gpu_draws import run

WHERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.float32, torch.float16]
if torch.cuda.is_available():
    DTYPES.append(torch.bfloat16)  # the interpreter cuts off what does not fit
CLOSE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Relative: the order of a sum, and where it decides, a rounding."""

COMPILE = """
import json, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from draftwood.kernels import gpu_layers
arch = json.loads(sys.argv[1])
given = {
    "_add_norm": dict(WIDTH=4096, LANES=4096, ADD=True, EARLY=True),
    "_rotate_store": dict(HEADS=32, KV_HEADS=8, HALF=64, LANES=64, NORM=True, EARLY=True),
    "_silu_mul": dict(BLOCK=1024),
}
scalars = {"x_row", "change_row", "query_token", "key_token", "value_token", "factor_token",
           "count", "width", "gate_row", "up_row"}
for name, own in given.items():
    kernel = getattr(gpu_layers, name)
    names = kernel.arg_names
    types = {each: "i32" for each in scalars} | {"entries": "*i64"}
    types |= {each: "fp32" for each in ("eps", "query_eps", "key_eps")}
    signature = {n: "constexpr" if n in own else types.get(n, "*bf16") for n in names}
    constants = {(names.index(n),): value for n, value in own.items()}
    source = ASTSource(kernel, signature, constants)
    assert triton.compile(source, target=GPUTarget("cuda", arch, 32)).asm["cubin"]
print("compiled")
"""


@pytest.fixture
def kernels() -> LayerKernels:
    """In the interpreter unless there is a GPU."""
    pytest.importorskip("triton")
    found = layer_kernels(WHERE)
    assert found is not None
    return found


def noise(*sizes: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sizes, generator=generator).to(WHERE, dtype)


def near(found: Tensor, expected: Tensor, least: float = 0.1) -> bool:
    """``least``: of what relative errors are told."""
    error = (found.float() - expected.float()).abs()
    return bool((error <= CLOSE[found.dtype] * expected.float().abs().clamp(min=least)).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("formula", [early, late])
@pytest.mark.parametrize("add", [False, True])
def test_a_sum_and_its_norm(
    kernels: LayerKernels, dtype: torch.dtype, formula: Formula, add: bool
) -> None:
    x = noise(5, 3, 48, dtype=dtype)[:, 1]  # rows that do not lie behind one another
    change = noise(5, 48, dtype=dtype, seed=1) if add else None
    weight = noise(48, dtype=dtype, seed=2)
    sums, normed = kernels.add_norm(x, change, weight, 1e-5, early=formula is early)
    expected = x if change is None else x + change
    assert torch.equal(sums, expected)
    assert near(normed, formula(expected, weight, 1e-5))
    assert not near(normed, formula(expected, weight, 1e-1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("normed", [False, True])
def test_heads_are_rotated_and_cached(
    kernels: LayerKernels, dtype: torch.dtype, normed: bool
) -> None:
    n, heads, kv_heads, width = 4, 6, 2, 24
    sizes = [heads * width, kv_heads * width, kv_heads * width]
    q, k, v = noise(n, sum(sizes), dtype=dtype).split(sizes, dim=1)  # type: ignore[no-untyped-call]
    cos, sin = (noise(1, n, width, dtype=dtype, seed=seed) for seed in (1, 2))
    keys, values = (noise(9, kv_heads, width, dtype=dtype, seed=seed) for seed in (3, 4))
    stored, entries = (keys.clone(), values.clone()), torch.tensor([7, 0, 3, 8], device=WHERE)
    weights = [noise(width, dtype=dtype, seed=seed) for seed in (5, 6)]
    norms = ((weights[0], 1e-5), (weights[1], 1e-6)) if normed else None
    given = (q, k, v, (cos, sin), entries)
    found = kernels.rotate_store(*given, keys, values, norms, early=True)
    rotated = PLAIN.rotate_store(*given, *stored, norms, early=True)
    # Where a norm is rounded the other way, both terms of a sum change.
    same: Any = partial(near, least=2.0) if normed or dtype is torch.float32 else torch.equal
    assert same(found, rotated)
    assert same(keys[entries], stored[0][entries])
    others = [1, 2, 4, 5, 6]
    assert torch.equal(keys[others], stored[0][others])
    assert torch.equal(values, stored[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gated_activation(kernels: LayerKernels, dtype: torch.dtype) -> None:
    gate, up = (7 * noise(3, 2, 700, dtype=dtype, seed=seed)[:, seed] for seed in (0, 1))
    assert near(kernels.silu_mul(gate, up), PLAIN.silu_mul(gate, up))


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90])
def test_the_kernels_compile_for_gpus(arch: int, tmp_path: Path) -> None:
    assert run(COMPILE, json.dumps(arch), interpret=False, home=tmp_path) == "compiled\n"
