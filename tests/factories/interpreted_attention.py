"""The kernel for attention of trees in Triton's interpreter, which needs no GPU."""

import pytest
import torch

from draftwood.kernels.gpu import AttendTrees


def interpreted_attention() -> AttendTrees:
    """The kernel on a CPU; tests without Triton, and on a machine with a GPU, are skipped."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("on a GPU the kernel is compiled")
    from draftwood.kernels.gpu_attention import attend_trees

    return attend_trees
