"""What ``auto`` leaves to gain: the oracles by hand, and every part on a tiny model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from draftwood import cli
from draftwood.costs.curve import Curve, StepCosts
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.recording import Text
from draftwood.lab.replay.rows import Paths, Ranked
from draftwood.methods import method
from draftwood.policies.auto.features import SILENT, Codes, Voice
from draftwood.policies.auto.pool import Pool
from draftwood.protocols.bids import Bid
from runs.auto_search.__main__ import main
from runs.auto_search.ahead import Ahead
from runs.auto_search.choosing import (
    foreseen_path,
    foreseen_size,
    likeliest,
    ranks,
    seconds,
    taken,
    told,
)
from runs.auto_search.faults import DRAFTED_OTHERS
from runs.auto_search.judging import (
    Judgement,
    Rates,
    Righted,
    by_depth,
    by_rank,
    by_voice,
    rising,
)
from runs.auto_search.playing import COSTS as GIVEN
from runs.auto_search.playing import Run, best, total
from tests.factories.tiny_llama import save_tiny

COSTS = StepCosts(Curve((1, 11), (1.0, 2.0)), fixed=0.5, node=0.1)
"""A step over n nodes takes 1.5 + 0.2 n seconds."""


class Half:
    """Everything is as likely as not."""

    def chance(self, codes: Codes) -> float:
        return 0.5


def text(context: Sequence[int], answer: Sequence[int], beyond: Sequence[int] = ()) -> Text:
    paths = Paths([*context, *answer, *beyond])
    return Text(len(context), len(answer), paths, Ranked(1))


def pool() -> Pool:
    """A chain 5 6 7 and siblings 8 and 9 of the 5."""
    found = Pool(1, Half(), 0.0, 64)
    found.copy((5, 6, 7), 3, "context", True)
    scores = np.log(np.array([[0.5, 0.4]], dtype=np.float32))
    found.offer(Voice.TABLE, "adjacency", [0], np.array([[8, 9]]), scores)
    return found


def after(*tokens: int) -> Ahead:
    """What a text goes on to say after its first answered token."""
    ahead = Ahead([text((1, 2), (3, *tokens))])
    ahead.begin([3])
    return ahead


def bid(limit: int = 64) -> Bid:
    return Bid(pool(), limit)


def test_foresight_follows_the_turns() -> None:
    texts = [text((1,), (2, 3, 4), (9,)), text((5,), (6,)), text((7, 8), (1, 2))]
    ahead = Ahead(texts)
    ahead.begin([2])
    assert ahead.tokens == [3, 4, 9]
    ahead.passed(1)
    ahead.begin([3])
    assert ahead.tokens == [4, 9]
    ahead.passed(2)  # beyond the answer's end, and past the turn that has no step
    ahead.begin([3])
    assert ahead.tokens == [2]
    ahead.passed(1)
    with pytest.raises(DraftwoodError, match="more turns"):
        ahead.begin([3])
    ahead.restart()
    ahead.begin([2])
    with pytest.raises(DraftwoodError, match="begins at token 4 and not at 2"):
        ahead.begin([4])


def test_ranks_of_the_taken_path() -> None:
    # In order: 5, 8 and 9 with a half each, 6 with a quarter, 7.
    assert taken(bid(), after(5, 6, 2)) == [1, 2]
    assert ranks(bid(), [1, 2, 3]) == [1, 4, 5]
    assert ranks(bid(), [5]) == [3]
    assert taken(bid(), after(4)) == []


def test_the_likeliest_are_as_many_as_were_asked_for() -> None:
    assert [likeliest(n)(bid()).drafted for n in (0, 1, 2, 4, 9)] == [0, 1, 2, 4, 5]
    assert likeliest(2)(bid()).tokens.tolist() == [1, 5, 8]


def test_sizes_that_are_foreseen_and_told() -> None:
    assert seconds(COSTS, 0, 2) == pytest.approx([1.5, 1.7, 1.9])
    # Three right tokens for 5 nodes: 3 - rate; one for 1 node: 1 - rate / 5.
    ahead = after(5, 6, 7)
    sizes = [foreseen_size(COSTS, rate, ahead)(bid()).drafted for rate in (2.0, 3.0, 6.0)]
    assert sizes == [5, 1, 0]
    assert foreseen_size(COSTS, 1.5, ahead)(bid()).drafted == 5
    assert foreseen_size(COSTS, 1.5, ahead)(bid(limit=4)).drafted == 4
    assert foreseen_size(COSTS, 2.0, after(4))(bid()).drafted == 0
    # Chances are a half three times, a quarter and an eighth; a node costs rate / 5.
    sizes = [told(COSTS, rate, ahead)(bid()).drafted for rate in (0.5, 1.0, 2.0, 3.0)]
    assert sizes == [5, 4, 3, 0]


def test_the_path_that_is_foreseen() -> None:
    tree = foreseen_path(after(5, 6, 2))(bid())
    assert (tree.tokens.tolist(), tree.parents.tolist()) == ([1, 5, 6], [-1, 0, 1])
    assert foreseen_path(after(4))(bid()).route == "plain"


def test_judgements_are_summed() -> None:
    codes = np.array([[5, SILENT, SILENT], [5, 3, SILENT], [1, 3, SILENT]])
    chances, hits = np.array([0.5, 0.25, 0.125]), np.array([True, False, False])
    paths, right = np.array([0.5, 0.4, 0.3, 0.2, 0.1]), np.array([1, 0, 0, 1, 0], dtype=np.bool_)
    one = Judgement(codes, chances, hits, np.array([1, 3, 4]), paths, right)
    assert by_voice([one]) == {
        "all": (3, 0.875, 1),
        "copied": (2, 0.75, 1),
        "table": (2, 0.375, 0),
    }
    ranked = by_rank([one, one])
    assert list(ranked) == ["1-4", "5-8"]
    assert ranked["1-4"] == pytest.approx((8, 2.8, 4))
    assert ranked["5-8"] == pytest.approx((2, 0.2, 0))
    assert by_depth([one]) == {"1-1": (1, 0.5, 1), "3-4": (2, 0.375, 0)}
    assert by_voice([]) == by_depth([]) == by_rank([]) == {}
    # Taken once of once, drawn half of the way to what is said otherwise; never seen: that itself.
    rates = Rates([one])
    assert rates.chance((5, SILENT, SILENT), 0.2) == pytest.approx(0.6)
    assert rates.chance((9, 9, SILENT), 0.2) == pytest.approx(0.2)


def test_paths_are_put_right() -> None:
    assert rising([1.0, 3.0, 2.0, 4.0, 0.0]) == [1.0, 2.25, 2.25, 2.25, 2.25]
    assert rising([0.2, 0.1, 0.3]) == pytest.approx([0.15, 0.15, 0.3])
    none = np.zeros(0)
    paths, right = np.array([0.2, 0.6, 0.8]), np.array([0, 1, 0], dtype=np.bool_)
    codes, depths = np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)
    one = Judgement(codes, none, none > 0, depths, paths, right)
    # Of the least likely path none was taken, of the others one in two.
    righted = Righted([one])
    assert righted(np.array([0.2, 0.4, 0.6, 0.7, 0.9, 1.0])) == pytest.approx(
        [0, 0.25, 0.5, 0.5, 0.75, 1], abs=1e-6
    )
    assert righted(np.array([0.6]))[0] < righted(np.array([0.7]))[0]


def test_the_best_method_of_some_prompts() -> None:
    slow, fast = Run(tokens=10, steps=5, seconds=5.0), Run(tokens=10, steps=2, seconds=4.0)
    assert best([{"a": slow, "b": fast}, {"a": fast, "b": slow}], ["b"]) == (0, fast)
    assert total([slow, fast]) == Run(tokens=20, steps=7, seconds=9.0)
    assert (slow.tau, slow.rate, Run().tau) == (2.0, 2.0, 1.0)


def record(path: Path, model: str, *sets: str) -> tuple[str, str]:
    """The model, and a recording of two prompts of each set."""
    for name in sets:
        lines = [{"id": f"{name}/{i}", "task": "t", "prompt": f"abc{i} abc{i} "} for i in (0, 1)]
        (path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    prompts = ",".join(f"{path}/{name}.jsonl" for name in sets)
    argv = ["record", "--prompts", prompts, "--model", model, "--max-new-tokens", "24"]
    cli.main([*argv, "--out", str(path / "r")])
    return model, str(path / "r")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A tiny model, and two sets."""
    path = tmp_path_factory.mktemp("search")
    return record(path, str(save_tiny(path / "tiny")), "one", "two")


def search(recorded: tuple[str, str], *argv: str) -> Any:
    checkpoint, recording = recorded
    done = CliRunner().invoke(main, [recording, "--model", checkpoint, *argv])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout), done.stderr


def test_every_part_on_a_tiny_model(recorded: tuple[str, str]) -> None:
    found, tables = search(recorded, "--sources", "free", "--sizes", "4,8", "--limit", "1")
    assert found["provenance"]["settings"]["sizes"] == [4, 8]
    nodes = found["nodes_free"]["sizes"]
    assert list(nodes) == ["4", "8"]
    assert list(nodes["4"]) == ["one", "two", "all", "no loop"]
    assert nodes["4"]["all"]["auto"]["nodes"] <= 4
    assert nodes["4"]["all"]["auto"]["tau"] <= nodes["8"]["all"]["auto"]["tau"]
    rows = found["faults_free"]["rows"]
    speeds = {name: row["tokens_per_second"]["all"] for name, row in rows.items()}
    assert rows["auto"]["over_auto"] == 0
    assert speeds["choice foreseen"] >= max(speeds["auto"], speeds["size foreseen"])
    assert speeds["best other of each prompt"] >= speeds["best other of each set"]
    calibration = found["calibration_free"]["sets"]
    assert list(calibration) == ["one", "two", "all"]
    cold = calibration["all"]["cold"]
    assert cold["sources"]["all"]["offered"] > cold["sources"]["all"]["taken"] > 0
    assert "| paths 1-4 |" in tables


def test_trees_of_a_draft_model(tmp_path: Path) -> None:
    flags = ("--sources", "drafted", "--parts", "nodes", "--sizes", "4", "--limit", "1")
    found, tables = search(record(tmp_path, "embedded", "one"), *flags)
    (by_group,) = found["nodes_drafted"]["sizes"].values()
    names = ("auto:drafter=model:layout=ranked", "talon", "eagle3:drafter=model")
    assert all(by_group["one"][name]["drafts"] > 0 for name in names)
    # The model speaks alone: no tree has a token of another source.
    assert found["nodes_drafted"]["mute"] == ["context", "adjacency"]
    assert all(0 < by_group["one"][name]["nodes"] <= 4 for name in names)
    best = max(by_group["one"][name]["tau"] for name in names[1:])
    assert by_group["one"]["gain"] == pytest.approx(
        by_group["one"][names[0]]["tau"] / best - 1, abs=1e-3
    )
    assert "| 4 | gain |" in tables


def test_what_is_unknown_is_refused(recorded: tuple[str, str]) -> None:
    done = CliRunner().invoke(main, [recorded[1], "--parts", "nodes,all"])
    assert done.exit_code == 2
    assert "--parts has nodes,all: choose from nodes, faults, calibration" in done.output


@pytest.mark.parametrize("name", DRAFTED_OTHERS)
def test_every_rivals_draft_levels_have_a_price(name: str) -> None:
    """Whatever source the draft model answers."""
    drafters = method(name).drafters.items()
    assert {source for source, spec in drafters if spec.model is not None} <= GIVEN.drafters.keys()
