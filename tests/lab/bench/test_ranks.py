"""Acceptance by rank: counted against a chain whose answers are known, and the command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from draftwood.cli.sequoia import sequoia
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.ranks import count_ranks, target_seconds
from draftwood.methods import method
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.tiny_llama import save_tiny

PROMPT = (1, 5, 2, 7)


def one_level(ranks: int, target: MarkovTarget, name: str = "x") -> Engine:
    spelt = f"fixed-tree:breadth={ranks}:depth=1:threshold=0:budget={ranks}:draft={name}"
    return Engine(target, method(spelt), host=FakeHost(target.info))


def test_ranks_are_those_of_the_draft_models_own_order() -> None:
    target = MarkovTarget(seed=0)
    host = FakeHost(target.info)
    text = [*PROMPT, *target.greedy(PROMPT, 60)]
    draft, _ = host.model("x")
    assert isinstance(draft, MarkovTarget)
    # What plain decoding would show: the rank of every next token, as long as it is looked at.
    expected = [0] * 4
    steps, at = 0, len(PROMPT) + 1
    while at < len(text) - 1:
        steps += 1
        order = draft.logits(text[:at]).argsort(descending=True).tolist()
        rank = order.index(text[at])
        if rank < 4:
            expected[rank] += 1
        at += 1 + (rank < 4)
    found = count_ranks(one_level(4, target), [Request(PROMPT, 60)], 4)
    assert abs(found.steps - steps) <= 1
    assert sum(abs(a - b) for a, b in zip(found.accepted, expected, strict=True)) <= 1
    assert found.acceptance == tuple(count / found.steps for count in found.accepted)
    assert found.draft_seconds > 0


def test_nothing_drafted_is_an_error() -> None:
    with pytest.raises(DraftwoodError, match="no step was drafted"):
        count_ranks(one_level(4, MarkovTarget()), [Request(PROMPT, 1)], 4)


def test_target_times_have_an_entry_for_every_size() -> None:
    target = MarkovTarget()
    times = target_seconds(target, 11, 7)
    assert len(times) == 12
    assert all(seconds > 0 for seconds in times)
    assert not target.cached


def test_the_command_writes_a_tree_that_the_method_reads(tmp_path: Path) -> None:
    name = str(save_tiny(tmp_path / "model"))
    prompts = tmp_path / "set.jsonl"
    prompts.write_text('{"id": "a", "task": "t", "prompt": "def f(x):"}\n')
    output = tmp_path / "tree.json"
    argv = [str(output), "--prompts", str(prompts), "--model", name, "--draft", name]
    argv += ["--ranks", "3", "--nodes", "6", "--max-depth", "3", "--max-new-tokens", "24"]
    outcome = CliRunner().invoke(sequoia, [*argv, "--context", "16", "--largest"])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(output.read_text())
    # Draft and target are one model, so that the first choice is always right.
    assert found["acceptance"] == [1.0, 0.0, 0.0]
    assert found["paths"][:3] == [[0], [0, 0], [0, 0, 0]]
    assert found["expected_length"] == 4.0
    assert len(found["target_ms"]) == 7
    assert found["provenance"]["model"]["name"] == name
    built = method(f"sequoia:tree={output}")
    assert built.policy.budget == 59


def test_the_command_refuses_before_it_measures(tmp_path: Path) -> None:
    argv = [str(tmp_path / "no" / "tree.json"), "--prompts", "nowhere.jsonl"]
    with pytest.raises(DraftwoodError, match="cannot write"):
        CliRunner().invoke(sequoia, argv, catch_exceptions=False)
