"""Best settings from end to end: found on some prompts, measured on others."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftwood.cli._bench_view import best_table
from draftwood.errors import DraftwoodError
from draftwood.lab.bench import best, contenders
from draftwood.lab.bench.document import Document
from draftwood.lab.bench.prompts import Prompt
from tests.factories.bench_command import bench as run_bench
from tests.factories.bench_command import two_sets
from tests.factories.command_line import run

SEARCHED: dict[str, Any] = {
    "model": "m",
    "draft": "d",
    "head": None,
    "dtype": "float32",
    "batch": 1,
    "chat": None,
    "max_new_tokens": 128,
    "threads": None,
    "sampling": {"temperature": 0.0},
}


def search(*argv: str) -> tuple[int, str]:
    code, _, err = run("search", *argv)
    return code, " ".join(err.split())


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tuning") / "tuning.jsonl"
    items = [{"id": f"t/{i}", "task": "code", "prompt": f"xyz{i} xyz{i} "} for i in range(2)]
    path.write_text("\n".join(map(json.dumps, items)))
    return str(path)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, checkpoint: str, tuning: str) -> Path:
    out = tmp_path_factory.mktemp("found") / "best.json"
    # Left by an earlier search, perhaps of another model.
    out.with_name("best.sequoia-largest.json").write_text('{"paths": []}')
    argv = ["--prompts", tuning, "--model", checkpoint, "--draft", checkpoint]
    argv += ["--methods", "pld,sequoia", "--max-new-tokens", "16"]
    code, err = search(str(out), *argv, "--by", best.TIMELESS)
    assert code == 0, err
    assert "best settings" not in err
    return out


def test_the_best_of_what_was_tried_is_written_with_its_provenance(found: Path) -> None:
    said = json.loads(found.read_text())
    assert said["by"] == best.TIMELESS
    assert said["provenance"]["other_processes"]["limit"] == 0.05
    pld = said["methods"]["pld"]
    assert pld["published"] == "pld"
    assert set(pld["tried"]) == {"pld", "pld:budget=5", "pld:budget=10", "pld:budget=40"}
    most = max(each[best.TIMELESS] for each in pld["tried"].values())
    assert pld["tried"][pld["best"]][best.TIMELESS] == most
    assert not found.with_suffix(".journal.jsonl").exists()


def test_sequoia_as_published_has_a_tree_that_was_searched(found: Path) -> None:
    sequoia = json.loads(found.read_text())["methods"]["sequoia"]
    # Where drafting does not pay, the fastest tree is none, and the largest one is taken.
    assert sequoia["published"].endswith(("best.sequoia-fastest.json", "best.sequoia-largest.json"))
    for text in sequoia["tried"]:
        path = Path(text.rpartition("=")[2])
        assert path.exists()
        assert json.loads(path.read_text())["paths"]


def test_a_benchmark_has_both_settings_side_by_side(
    tmp_path: Path, checkpoint: str, found: Path
) -> None:
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    argv = [
        "--prompts",
        two_sets(tmp_path),
        "--model",
        checkpoint,
        "--draft",
        checkpoint,
        "--limit",
        "1",
    ]
    more = ["--methods", "pld,sequoia,goose:budget=9", "--json", str(out), "--html", str(page)]
    code, _, err = run_bench(*argv, *more, "--best", str(found))
    assert code == 0, err
    said = json.loads(out.read_text())
    pairs = json.loads(found.read_text())["methods"]
    wanted = [pairs[name][key] for name in ("pld", "sequoia") for key in ("published", "best")]
    assert list(said["methods"]) == list(dict.fromkeys(["ar", *wanted, "goose:budget=9"]))
    assert set(said["best"]["methods"]) == {"pld", "sequoia"}
    for shown in (err, page.read_text()):
        assert "as published" in shown
        assert "best setting" in shown


def test_prompts_of_the_search_and_other_models_are_refused(
    tmp_path: Path, checkpoint: str, tuning: str, found: Path
) -> None:
    argv = ["--model", checkpoint, "--methods", "pld", "--best", str(found)]
    code, _, err = run_bench("--prompts", tuning, *argv)
    assert code == 2
    assert "were found on prompt t/0 and 1 more" in err
    renamed = tmp_path / "again.jsonl"
    renamed.write_text('{"id": "new", "task": "t", "prompt": "xyz0 xyz0 "}')
    code, _, err = run_bench("--prompts", str(renamed), *argv)
    assert (code, "were found on prompt new" in err) == (2, True)
    other = ["--model", "embedded", "--methods", "pld", "--best", str(found)]
    code, _, err = run_bench("--prompts", two_sets(tmp_path), *other)
    assert (code, "search again with this model" in err) == (2, True)


def searched(**methods: best.Tried) -> best.Best:
    facts = {"settings": SEARCHED}
    return best.Best(best.SCHEMA, best.TIMELESS, facts, methods, (), file="b.json")


def test_what_was_not_searched_is_refused_and_what_cannot_be_is_not() -> None:
    some = searched(pld=best.Tried("pld", "pld:budget=5", {}))
    asked = ("ar", "pld", "auto", "hf", "goose:budget=9", "pld:budget=5")
    assert some.contenders(asked) == ("ar", "pld", "pld:budget=5", "auto", "hf", "goose:budget=9")
    with pytest.raises(DraftwoodError, match=r"b\.json has no best setting of tr: search it too"):
        some.contenders(("tr",))
    some.refuse([Prompt("a", "t", "s", ("x",))], SEARCHED)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "n"}, "searched with model m, not with n: search again with this model"),
        ({"draft": "e"}, "searched with draft d, not with e"),
        ({"head": "h"}, "searched with head none, not with h"),
        ({"dtype": "bfloat16"}, "searched with dtype float32, not with bfloat16"),
        ({"batch": 4}, "searched with batch 1, not with 4"),
        ({"chat": True}, "searched with chat left to the prompts, not with on"),
        ({"sampling": {"temperature": 1.0}}, r"searched with temperature 0\.0, not with 1\.0"),
        (
            {"sampling": {"temperature": 0.0, "top_p": 0.9, "banned_tokens": []}},
            r"searched with top_p 1\.0, not with 0\.9",
        ),
        ({"max_new_tokens": 64}, "searched with max_new_tokens 128, not with 64"),
        ({"threads": 4}, None),
        ({"sampling": {"temperature": 0.0, "top_k": 0, "seed": 7}}, None),
        ({"draft": None}, None),
        ({"repeats": 2}, None),
    ],
)
def test_runs_that_a_search_says_nothing_of_are_refused(
    change: dict[str, Any], said: str | None
) -> None:
    some = searched()
    with nullcontext() if said is None else pytest.raises(DraftwoodError, match=said):
        some.refuse([], {**SEARCHED, **change})


def test_a_search_by_speed_is_of_its_threads() -> None:
    with pytest.raises(DraftwoodError, match="searched with threads none, not with 4"):
        replace(searched(), by="tokens_per_second").refuse([], {**SEARCHED, "threads": 4})


@pytest.mark.parametrize(
    ("by", "share", "noted"),
    [
        (best.TIMELESS, 0.4, False),
        ("tokens_per_second", 0.4, True),
        ("tokens_per_second", 0.01, False),
    ],
)
def test_a_disturbed_search_by_speed_is_said_in_the_note(
    found: Path, tmp_path: Path, by: str, share: float, noted: bool
) -> None:
    said = json.loads(found.read_text())
    said["by"] = by
    said["provenance"]["other_processes"] |= {"share": share, "timed_share": share}
    again = tmp_path / "again.json"
    again.write_text(json.dumps(said))
    told = best.load(again).recorded(["pld"])
    assert (told.disturbed is not None) is noted
    caption = str(best_table(Document(0, True, {}, {}, {}, ()), told).caption)
    assert ("not reliable: other processes used 40% of the cores" in caption) is noted


@pytest.mark.slow
def test_a_stopped_search_goes_on(
    tmp_path: Path, checkpoint: str, tuning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "best.json"
    argv = ["--prompts", tuning, "--model", checkpoint, "--methods", "pld"]
    argv += ["--max-new-tokens", "8"]
    decode, calls = contenders.decode_with, [0]

    def stopping(*given: Any) -> Any:
        calls[0] += 1
        if calls[0] == 8:
            raise KeyboardInterrupt
        return decode(*given)

    monkeypatch.setattr(contenders, "decode_with", stopping)
    assert search(str(out), *argv)[0] == 130
    assert not out.exists()
    assert "add --resume" in search(str(out), *argv)[1]
    code, err = search(str(out), *argv, "--resume")
    assert code == 0, err
    assert json.loads(out.read_text())["provenance"]["resumed"]


def test_what_cannot_be_searched_or_read_is_refused_in_one_line(
    tmp_path: Path, checkpoint: str, tuning: str
) -> None:
    argv = [str(tmp_path / "o.json"), "--prompts", tuning, "--model", checkpoint]
    code, err = search(*argv, "--methods", "ar")
    assert (code, "ar has no settings to search; these methods have:" in err) == (2, True)
    code, err = search(*argv, "--methods", "nope")
    assert (code, "unknown method 'nope'" in err) == (2, True)
    wrong = tmp_path / "x.json"
    facts: dict[str, object] = {"settings": {}, "other_processes": {}}
    damaged = {"best_settings": 2, "by": "x", "provenance": facts, "methods": {}, "prompts": []}
    names = ("model", "draft", "head", "dtype", "batch", "chat", "max_new_tokens", "threads")
    settings = dict.fromkeys(names)

    def searched(**changed: object) -> str:
        origin = {"settings": {**settings, **changed}}
        return json.dumps({**damaged, "provenance": origin})

    for content, said in (
        ("{", "is not JSON"),
        ("[1]", "is not a file of best settings"),
        ('{"best_settings": 2}', "by is missing: search again"),
        (json.dumps(damaged), "provenance.other_processes.share is missing: search again"),
        (searched(), "provenance has no 'sampling': search again"),
        (searched(sampling=1), r"settings\.sampling: expected an object, found 1: search again"),
        (searched(sampling={}), r"settings\.sampling\.temperature is missing: search again"),
        (
            searched(sampling={"temperature": 0}, chat="on"),
            r"settings\.chat: expected true or false or null, found \"on\": search again",
        ),
    ):
        wrong.write_text(content)
        with pytest.raises(DraftwoodError, match=said):
            best.load(wrong)
    with pytest.raises(DraftwoodError, match="No such file"):
        best.load(tmp_path / "none.json")


def test_long_prompts_are_cut_if_that_is_asked_for(tmp_path: Path, checkpoint: str) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"id": "l/0", "task": "code", "prompt": 100 * "abcdef "}))
    argv = ["--prompts", str(path), "--model", checkpoint, "--methods", "pld"]
    argv += ["--max-new-tokens", "4"]
    code, err = search(str(tmp_path / "best.json"), *argv)
    assert code == 2, err
    assert "l/0" in err
    code, err = search(str(tmp_path / "best.json"), *argv, "--truncate", "40")
    assert code == 0, err
