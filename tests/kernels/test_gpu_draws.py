"""The Triton kernel draws what tensors give, interpreted on the CPU, and compiles for GPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from draftwood.sampling.philox import exponentials, signed

pytest.importorskip("triton")

DRAW = """
import json, sys, torch
from draftwood.kernels.gpu_draws import draw_on_gpu
cases = torch.load(sys.argv[1], weights_only=True)
print(json.dumps([draw_on_gpu(*case).tolist() for case in cases]))
"""

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from draftwood.kernels.gpu_draws import BLOCK, _draw_blocks
types = {"scores": "*fp32", "stride": "i32", "size": "i32", "count": "i32", "best": "*fp64"}
names = _draw_blocks.arg_names
signature = {name: types.get(name, "*i64") for name in names} | {"BLOCK": "constexpr"}
source = ASTSource(_draw_blocks, signature, {(names.index("BLOCK"),): BLOCK})
for arch in (80, 90):
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32))
    assert ".visible .entry _draw_blocks" in made.asm["ptx"]
    assert made.asm["cubin"]
print("compiled")
"""


def run(code: str, *arguments: str, interpret: bool, home: Path) -> str:
    """What a process that imports Triton anew prints."""
    environment = os.environ | {"TRITON_CACHE_DIR": str(home / "triton")}
    environment.pop("TRITON_INTERPRET", None)
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


Case = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def case(nodes: int, size: int, seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(nodes, size, generator=generator)
    scores[0, 3:] = -torch.inf
    seeds = torch.tensor([signed(2**64 - 3), 5, seed])
    positions = torch.tensor([7, 2**33, seed])
    return scores, seeds, positions, torch.randint(3, (nodes,), generator=generator)


def test_the_interpreted_kernel_draws_what_tensors_give(tmp_path: Path) -> None:
    cases = [case(*shape, seed) for seed in range(6) for shape in ((1, 5), (9, 1024), (4, 2501))]
    torch.save(cases, tmp_path / "cases.pt")
    found = json.loads(run(DRAW, str(tmp_path / "cases.pt"), interpret=True, home=tmp_path))
    expected = []
    for scores, seeds, positions, levels in cases:
        noise = exponentials(seeds, positions, scores.shape[1]).log()
        expected.append((scores - noise[levels]).argmax(dim=-1).tolist())
    assert found == expected
    assert len({token for tokens in expected for token in tokens}) > 50


@pytest.mark.slow
def test_the_kernel_compiles_for_gpus(tmp_path: Path) -> None:
    assert run(COMPILE, interpret=False, home=tmp_path) == "compiled\n"
