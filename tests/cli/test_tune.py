"""The command end to end on a tiny model, and the steps it looks at."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import draftwood
from draftwood.cli import _timed_steps, _tune_tables
from draftwood.cli._timed_steps import Check, TimedStep, _timed, check, run_steps
from draftwood.cli.tune import memory_of, tune, verdict
from draftwood.costs import store
from draftwood.costs.busy import Others, Watched
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fit import Sample
from draftwood.costs.store import CostsKey
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE, encode
from draftwood.lab.request_memory import RequestMemory
from draftwood.methods import method
from draftwood.protocols import Drafter, StepTimes
from draftwood.runner.attach import attach
from draftwood.tree import tree_of
from tests.factories.command_line import lost_reader
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

QUICK = ["--seconds", "0.3", "--context", "16,32", "--largest", "5"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "costs"


@pytest.fixture(autouse=True)
def neighbours(monkeypatch: pytest.MonkeyPatch) -> Others:
    """What other processes are said to use meanwhile, so that no test needs a quiet machine."""
    found = Others(0.0, 1.0)

    @contextmanager
    def watched() -> Iterator[Watched]:
        yield Watched(found)

    monkeypatch.setattr("draftwood.cli.tune.watched", watched)
    return found


def test_it_measures_shows_and_keeps(checkpoint: str, tmp_path: Path, cache: Path) -> None:
    output = tmp_path / "costs.json"
    argv = ["--model", checkpoint, "--draft", checkpoint, "--batch", "1,2", "--json", str(output)]
    outcome = CliRunner().invoke(tune, [*argv, *QUICK])
    assert outcome.exit_code == 0, outcome.output
    assert "16 cached tokens, 2 sequences" in outcome.output
    assert "break-even, chain of draft" in outcome.output
    found = json.loads(output.read_text())
    costs = StepCosts.from_json(found["costs"])
    assert costs.target.sizes[0] == 1
    assert set(costs.drafters) == set(found["samples"]) - {"target"} == {"draft"}
    assert {one["batch"] for one in found["checks"]} == {1, 2}
    assert {one["method"].partition(":")[0] for one in found["checks"]} >= {"ar", "sd"}
    assert found["provenance"]["settings"]["seconds"] == 0.3
    (path,) = cache.iterdir()
    written = json.loads(path.read_text())
    assert (written["key"], written["value"]) == (found["key"], found["costs"])
    assert "ms for one token, with a draft" in written["about"]


def test_costs_are_written_also_if_the_tables_have_lost_their_reader(
    checkpoint: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwood.cli.tune.show", lost_reader)
    output = tmp_path / "costs.json"
    outcome = CliRunner().invoke(tune, ["--model", checkpoint, "--json", str(output), *QUICK])
    assert outcome.exit_code == 1
    assert StepCosts.from_json(json.loads(output.read_text())["costs"]).target.sizes


def test_a_draft_model_and_a_head_are_measured_for_a_method_with_both(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, threads = tmp_path / "costs.json", torch.get_num_threads()
    argv = ["--draft", "embedded-draft", "--head", "embedded-eagle3", "--json", str(output)]
    outcome = CliRunner().invoke(tune, [*argv, *QUICK, "--threads", str(threads)])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(output.read_text())
    costs = StepCosts.from_json(found["costs"])
    assert set(costs.drafters) == set(found["samples"]) - {"target"} == {"draft", "eagle3"}
    checked = {one["method"] for one in found["checks"]}
    assert checked >= {"sd:draft=embedded-draft", "sd:head=embedded-eagle3"}
    for source in ("draft", "eagle3"):
        assert f"chain of {source}" in " ".join(outcome.output.split())

    asked: list[CostsKey] = []

    def known(key: CostsKey, _: object) -> StepCosts:
        asked.append(key)
        return costs

    monkeypatch.setattr(store, "read_or_measure", known)
    model, tokenizer = draftwood.embedded()
    text = "auto:draft=embedded-draft:head=embedded-eagle3"
    assert len(Engine(model, text, tokenizer=tokenizer).generate([Request([1, 2, 3], 4)])) == 1
    [key] = asked
    # Layouts are chosen by time, by each process for itself.
    assert encode(replace(key, layouts=())) == found["key"] | {"layouts": []}


def test_what_was_measured_on_a_busy_machine_is_shown_but_not_kept(
    checkpoint: str, tmp_path: Path, cache: Path, neighbours: Others
) -> None:
    object.__setattr__(neighbours, "seconds", 0.5)
    output = tmp_path / "costs.json"
    argv = ["--model", checkpoint, "--json", str(output), *QUICK]
    outcome = CliRunner().invoke(tune, argv, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.endswith(
        "not saved: other processes used 50 % of the cores; measure again on a quiet machine\n"
    )
    assert not cache.exists()
    assert json.loads(output.read_text())["costs"]


def test_what_cannot_be_honoured_is_refused_first(tmp_path: Path) -> None:
    cases = [
        (["--batch", "1,x"], "--batch '1,x': write numbers"),
        (["--context", "0"], "contexts are"),
        (["--seconds", "0"], "--seconds is 0: give a number above 0"),
        (["--seconds", "nan"], "--seconds is nan: give a number above 0"),
        (["--json", str(tmp_path / "no" / "x.json")], "cannot write"),
        (["--plot", str(tmp_path / "x.txt")], "end its name in .png, .svg, .pdf"),
    ]
    for argv, message in cases:
        with pytest.raises(DraftwoodError, match=message):
            CliRunner().invoke(tune, ["--model", "nowhere", *argv], catch_exceptions=False)


def test_without_a_context_it_measures_what_fits_the_model(tmp_path: Path) -> None:
    model = tiny_llama(context=64)
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    argv = ["--model", str(tmp_path), "--seconds", "0.3", "--json", str(tmp_path / "costs.json")]
    outcome = CliRunner().invoke(tune, argv, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    settings = json.loads((tmp_path / "costs.json").read_text())["provenance"]["settings"]
    assert (settings["sizes"][-1], settings["contexts"]) == (32, [32])


def _shorter_draft(directory: Path, context: int) -> str:
    tiny_llama(seed=1, layers=1, context=context).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return str(directory)


def test_a_draft_of_a_shorter_context_is_measured_where_it_reaches(
    checkpoint: str, tmp_path: Path
) -> None:
    draft, output = _shorter_draft(tmp_path / "draft", 24), tmp_path / "costs.json"
    argv = [
        "--model",
        checkpoint,
        "--draft",
        draft,
        "--json",
        str(output),
        *QUICK,
        "--context",
        "32",
    ]
    outcome = CliRunner().invoke(tune, argv, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    samples = json.loads(output.read_text())["samples"]
    assert {one["context"] for one in samples["target"]} == {32}
    assert {one["context"] for one in samples["draft"]} == {16}


def test_a_draft_that_reaches_nothing_is_refused(checkpoint: str, tmp_path: Path) -> None:
    argv = ["--model", checkpoint, "--draft", _shorter_draft(tmp_path, 1), *QUICK]
    with pytest.raises(DraftwoodError, match="too short to draft"):
        CliRunner().invoke(tune, argv, catch_exceptions=False)


def test_a_prompt_that_leaves_no_second_step_is_not_tried_for_ever() -> None:
    target = MarkovTarget(context_limit=8)
    assert run_steps(target, FakeHost(target.info), "ar", [1] * 6, 1, 0.0) == []


def test_the_curves_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curve = Curve((1, 4), (1e-3, 2e-3))
    samples = [Sample(1, 64, 1, 1e-3), Sample(4, 64, 1, 2e-3), Sample(4, 128, 2, 3e-3)]
    for suffix, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = tmp_path / f"costs.{suffix}"
        _tune_tables.check(path)
        names = ("target", "draft")
        _tune_tables.plot(path, dict.fromkeys(names, curve), dict.fromkeys(names, samples))
        assert path.read_bytes().startswith(start)


def test_without_matplotlib_there_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DraftwoodError, match=r"needs matplotlib.*lab"):
        _tune_tables.check(tmp_path / "costs.png")


def test_a_step_has_the_tokens_of_all_its_trees() -> None:
    trees = [tree_of([1, 2, 3], [-1, 0, 1]), tree_of([4], [-1])]
    stats = [StepStats(tree, (), 1, StepTimes(0.1, 0.2, 0.3), batch=2) for tree in trees]
    assert _timed(stats, cached=9, seconds=1.0).tokens == 4


def test_steps_say_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each step reads the clock three times: it stops in the first batch, where requests have room.
    ticks = count()
    monkeypatch.setattr(_timed_steps, "perf_counter", lambda: float(next(ticks)))
    target = MarkovTarget(context_limit=512)
    prompt = [1, 5, 2, 7] * 4
    spelt = "sd:budget=2:draft=x"
    found = run_steps(target, FakeHost(target.info), spelt, prompt, 2, 31.0)
    assert len(found) > 4
    assert not target.cached
    for step in found:
        assert step.batch == 2
        assert step.tokens == 6
        assert step.levels == (2, 2)
        assert 0.0 < step.target < step.seconds == 1.0
    # Each step caches its roots and accepted nodes; the first one, with the prefill, is left out.
    contexts = [2 * len(prompt), *(step.context for step in found)]
    assert all(2 <= b - a <= 6 for a, b in pairwise(contexts))


def test_predictions_are_held_against_steps() -> None:
    costs = StepCosts(Curve((1, 3), (1.0, 3.0)), {"draft": Curve((1, 2), (0.5, 0.5))}, fixed=1.0)
    steps = [
        TimedStep(3, 0, 1, (1, 1), 4.0, 3.0),
        TimedStep(3, 0, 1, (1, 1), 10.0, 3.0),
        TimedStep(1, 0, 1, (), 2.0, 1.0),
    ]
    found = check(costs, "sd", 1, steps, "draft")
    assert (found.steps, found.measured, found.predicted) == (3, 4.0, 5.0)
    assert found.ratio == 1.0  # of 5/4, 5/10 and 2/2


def _checked(*ratios: float) -> list[Check]:
    return [Check("ar", 1, 1, 1.0, ratio, ratio) for ratio in ratios]


def test_ratios_are_judged_by_how_far_they_differ() -> None:
    assert "differ by 5 %: good" in verdict(_checked(0.8, 0.84))
    assert "differ by 50 %, so auto's first trees will have the wrong size" in verdict(
        _checked(0.8, 1.2)
    )
    assert "give more --seconds" in verdict([])


class _Drafter(Drafter):
    """With caches of its own."""

    token_bytes = 40
    slot_bytes = 500
    node_bytes = 6


def test_the_memory_of_requests_is_that_of_the_target_and_of_drafters() -> None:
    runner = attach(tiny_llama(), self_test=False)
    token = runner.info.token_bytes
    runner.info = replace(runner.info, slot_bytes=1000, node_bytes=10)
    found = memory_of(runner, [_Drafter(), _Drafter()])
    nodes = method("auto").policy.budget + 1
    assert found == RequestMemory(token + 80, 2000, 22, nodes, block=0)


def test_it_says_how_many_requests_fit_into_what_is_free(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwood.cli.tune.free_memory", lambda _: 10**8)
    outcome = CliRunner().invoke(tune, ["--model", checkpoint, *QUICK], catch_exceptions=False)
    told = " ".join(outcome.output.split())
    assert "a token for keys and values; 100 MB are free: room for" in told
