"""Buffers that grow, and hand over exactly what was written."""

import torch

from draftwood.runner.forward import Staging


def test_lanes_arrive_as_written() -> None:
    staging = Staging(3, torch.device("cpu"))
    for size in (4, 200, 6, 1000, 4):
        lanes = staging.lanes(size)
        lanes[:] = [[10 * lane + i for i in range(size)] for lane in range(3)]
        for lane, sent in enumerate(staging.send()):
            assert sent.dtype == torch.int64
            assert sent.is_contiguous()
            assert sent.tolist() == [10 * lane + i for i in range(size)]
    staging.lanes(6)[1] = range(6)
    assert staging.send(2, 3)[1].tolist() == [[0, 1, 2], [3, 4, 5]]
