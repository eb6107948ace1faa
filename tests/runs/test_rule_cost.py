"""The cost of a recurrent rule, at tiny sizes."""

import json

import pytest
from click.testing import CliRunner

pytest.importorskip("transformers.models.qwen3_5")
pytest.importorskip("transformers.models.kimi_linear")

from runs.rule_cost import main, random_parents


@pytest.mark.parametrize("by_channel", [[], ["--by-channel"]])
def test_every_part_is_timed_at_every_size(by_channel: list[str]) -> None:
    flags = ["--heads", "3", "--width", "8", "--hidden", "16", "--seconds", "0", *by_channel]
    done = CliRunner().invoke(main, [*flags, "--nodes", "1", "--nodes", "9", "--threads", "1"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["provenance"]["model"]["hidden"] == 16
    assert [*found["milliseconds"]] == ["1", "9"]
    for times in found["milliseconds"].values():
        assert {*times} == {"tree", "commit", "convolution", "chunk", "recurrent", "projections"}
        assert min(times.values()) > 0


def test_trees_are_trees() -> None:
    parents = random_parents(64, seed=1)
    assert parents[0] == -1
    assert all(max(0, node - 8) <= parent < node for node, parent in enumerate(parents) if node)
    assert random_parents(1, seed=0) == [-1]
