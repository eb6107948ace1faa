"""What each source of auto is worth: the methods of the studies, and a small recording."""

import json
import sys
from pathlib import Path

import pytest

from draftwood.costs.costs_file import read_costs
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.file import write
from draftwood.methods import method
from draftwood.policies.auto.policy import Auto
from runs.smollm2 import sources
from runs.smollm2.sources import FREE, STUDIES, main, spelt
from tests.lab.replay.live_and_replayed import stage


@pytest.mark.parametrize("head", [None, "smollm2-eagle3"])
@pytest.mark.parametrize("study", STUDIES)
def test_every_method_has_the_sources_that_its_name_says(study: str, head: str | None) -> None:
    found = spelt(study, head)
    if head is not None:
        assert list(found) == list(STUDIES[study])
    for name, text in found.items():
        policy = method(text).policy
        assert isinstance(policy, Auto)
        assert policy.shipped != "all", "a head is named or there is none"
        assert bool(policy.neural) == (head is not None and _has_head(name))
        for source in ("context", "adjacency", "suffix"):
            if name == f"without {source}":
                assert source not in policy.sources
        assert (policy.shape == "chain") == name.endswith("chain")


def _has_head(name: str) -> bool:
    return name.startswith(("all", "head")) or ("without" in name and "head" not in name)


def test_a_source_alone_is_alone() -> None:
    found = spelt("shapes", "smollm2-eagle3")
    for name in ("context", "adjacency"):
        assert method(found[f"{name}, tree"]).policy.sources == (name,)
    assert method(found["head, chain"]).policy.sources == ("draft",)


def test_nodes_are_free() -> None:
    costs = read_costs(FREE)
    assert costs.step(1) == costs.step(61)


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_a_recording_is_studied(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = stage("embedded")
    prompts = [
        Prompt(f"{kind}{i}", "code", kind, (f"def {kind}_{i}(a, b):\n    return",))
        for kind, i in (("add", 0), ("sub", 1))
    ]
    path = tmp_path / "tiny.rec"
    write(path, at.record(prompts, max_new_tokens=12))
    words = [study, str(path), "--model", "embedded", "--head", "embedded-eagle3"]
    words += ["--gpus", "", "--batches", "1,4"]
    monkeypatch.setattr(sys, "argv", ["sources.py", *words])
    monkeypatch.setattr(sources, "SIZES", (8,))
    main()
    found = json.loads(capsys.readouterr().out)[study]["tiny"]["methods"]
    assert list(found) == list(STUDIES[study])
    for each in found.values():
        assert list(each["tokens_a_step"]) == ["8"]
        assert set(each["tokens_a_step"]["8"]) == {"add", "sub"}
        assert set(each["speed"]["own costs"]) == {"1", "4"}
    first = next(iter(found.values()))
    assert first["speed"]["own costs"]["1"]["mean"] == pytest.approx(1.0)
