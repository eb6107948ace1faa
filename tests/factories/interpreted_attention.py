"""The kernel for attention of trees in Triton's interpreter, which needs no GPU."""

import pytest
import torch

from draftwood.kernels.gpu import AttendTrees
from draftwood.runner.block_cache import BlockCache
from draftwood.runner.device_trees import DeviceTrees
from draftwood.runner.masks import LayerKind
from draftwood.runner.runner import Runner


def interpreted_attention() -> AttendTrees:
    """The kernel on a CPU; tests without Triton, and on a machine with a GPU, are skipped."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("on a GPU the kernel is compiled")
    from draftwood.kernels.gpu_attention import attend_trees

    return attend_trees


def attend_by_kernel(runner: Runner, kinds: tuple[LayerKind, ...], group: int) -> BlockCache:
    """Let a runner on a CPU attend as on a GPU; returns its cache.

    Args:
        runner: of a float32 model.
        kinds: of the model's layers.
        group: query heads per key head.
    """
    forward_pass, cpu = runner._forward_pass, torch.device("cpu")
    forward_pass.masks = DeviceTrees(interpreted_attention(), kinds, group, torch.float32, cpu)
    forward_pass.cache = cache = BlockCache(forward_pass.cache.planes)
    return cache
