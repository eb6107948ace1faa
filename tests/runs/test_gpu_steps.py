"""The times of steps are measured in every mode that a machine has."""

import json

import pytest
import torch
from click.testing import CliRunner

from draftwood.lab.inflate.shapes import PRESETS, LlamaShape
from runs import gpu_steps
from runs.gpu_steps import MODES, main

TINY = LlamaShape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn=96)


def test_steps_are_timed_by_mode_batch_context_and_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "tiny", TINY)
    monkeypatch.setattr(gpu_steps, "VOCABULARY", 300)
    flags = "--shape tiny --nodes 1 --nodes 4 --context 16 --context 40 --batch 1 --batch 2"
    done = CliRunner().invoke(main, [*flags.split(), "--tokens", "8", "--seconds", "1"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["copy_bytes_per_second"] > 1e6
    assert found["tiny"]["weight_bytes"] == 2 * TINY.parameters(300, tied=True)
    assert min(found["tiny"]["plain"], found["tiny"]["generate"]) > 0
    rows = {
        tuple(r[key] for key in ("mode", "batch", "context", "nodes")): r
        for r in found["tiny"]["steps"]
    }
    expected = {(MODES[0], 1, context, nodes) for context in (16, 40) for nodes in (1, 4)}
    expected |= {(MODES[0], 2, 16, nodes) for nodes in (1, 4)}
    expected |= {(mode, 1, 16, nodes) for mode in MODES[1:] for nodes in (1, 4)}
    assert set(rows) == expected
    assert all(row["milliseconds"] > 0 for row in rows.values())
    assert bool(found["tiny"]["device"]) == torch.cuda.is_available()
