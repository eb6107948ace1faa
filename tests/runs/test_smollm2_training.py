"""The recipe of SmolLM2's drafts: its prompts, its kept answers, and when its head is done."""

import gzip
import json
import os
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import draftwood
from draftwood import models
from draftwood.cli.train import train
from draftwood.files import write_json
from draftwood.lab.train.answers import read_prompts
from runs.smollm2 import answers, head, install, prompts, small_draft

RUNS = Path(prompts.__file__).parent
CODE = '''
def area(width, height):
    """Return the area of a rectangle with the given sides."""
    product = width * height
    return product
'''
PASSAGE = "Anna lived near the river Vlaar, and every day, people of Norham walked past it. " * 3
TEXTS = {
    "chat": [
        "User: Where does the river rise, and where does it end?\nAssistant: Here.\nUser: Why?"
    ],
    "math": ["Question: How many rolls are two times three rolls?\nAnswer: 6"],
    "code": [CODE],
    "wiki": [f"= Norham =\n\n{PASSAGE}\n\n{PASSAGE}"],
    "prose": [f"{PASSAGE}\n\n{PASSAGE}"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    for domain, texts in TEXTS.items():
        text = "".join(f"{each}\n<|endoftext|>\n" for each in texts)
        (directory / f"{domain}.txt.gz").write_bytes(gzip.compress(text.encode()))
    return directory


def test_every_task_has_prompts_and_any_first_part_has_all_tasks(data: Path) -> None:
    assert sum(prompts.SHARES.values()) == pytest.approx(1)
    found = prompts.prompts(data, 60, seed=1)
    assert {task for task, _ in found} == prompts.TASKS.keys() == prompts.SHARES.keys()
    assert prompts.prompts(data, 60, seed=1) == found
    for _, messages in found:
        assert messages[-1]["role"] == "user"
        assert all(each["content"].strip() for each in messages)
    some = Counter(task for task, _ in found[: len(found) // 2])
    assert all(some[task] <= count for task, count in Counter(t for t, _ in found).items())


def test_the_written_prompts_are_read_by_the_command(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "prompts.jsonl"
    words = ["prompts.py", str(data), str(out), "--count", "60", "--first", "9"]
    monkeypatch.setattr(sys, "argv", words)
    prompts.main()
    assert len(read_prompts(out)) == 9


def test_kept_answers_become_the_same_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "KEPT", tmp_path / "kept.jsonl.gz")
    monkeypatch.setattr(answers, "RECIPE", tmp_path / "kept.recipe.json")
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    for number, lines in enumerate(("a\nb\n", "c\n")):
        (before / f"answers-{number:04d}.jsonl").write_text(lines)
    write_json(before / "recipe.json", {"shard": 2, "seed": 1})
    answers.pack(before)
    answers.unpack(after)
    assert {path.name: path.read_text() for path in after.iterdir()} == {
        path.name: path.read_text() for path in before.iterdir()
    }
    write_json(after / "recipe.json", {"shard": 2, "seed": 2})
    with pytest.raises(SystemExit, match="answers of another recipe"):
        answers.unpack(after)
    with pytest.raises(SystemExit, match="has no answers"):
        answers.pack(tmp_path / "none")


@pytest.mark.parametrize(
    ("firsts", "tokens", "seconds", "done"),
    [
        ([0.5, 0.6], 1_000, 0, False),  # rises
        ([0.5, 0.504], 1_000, 0, True),
        ([0.5, 0.504], 999, 0, False),  # too early
        ([0.5, 0.49], 1_000, 0, True),
        ([0.5, 0.6], 1_000, 9 * 3600, True),  # the last quarter of 12 hours is left
        ([], 0, 0, False),
    ],
)
def test_training_ends_when_accuracy_settles(
    firsts: list[float], tokens: int, seconds: float, done: bool
) -> None:
    curve = [{"first": first, "tokens": tokens, "wall_seconds": seconds} for first in firsts]
    assert head.settled(curve, least=1_000, hours=12) is done


def test_the_head_is_judged_and_then_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int | None]] = []
    updates, batch = 0, head.ROWS * head.LENGTH

    def train(out: Path, tokens: int, stop_after: int | None, arguments: list[str]) -> Any:
        nonlocal updates
        assert arguments == ["--data", "d"]
        calls.append((tokens, stop_after))
        updates += stop_after or 0
        first = min(0.6, 0.2 * len(calls))
        trained = {"updates": updates, "tokens": batch * updates, "wall_seconds": 1}
        return {
            "trained": trained,
            "held_out": {"answers": {"greedy": [first], "accepted_tokens": 1.0}},
        }

    monkeypatch.setattr(head, "train", train)
    monkeypatch.setattr(head, "updates_of", lambda out: updates)
    monkeypatch.setattr(
        sys, "argv", ["head.py", str(tmp_path), "--least", "1", "--", "--data", "d"]
    )
    head.main()
    each = head.EVERY // batch
    assert [stop_after for _, stop_after in calls] == [each] * 4 + [None]
    assert calls[-1][0] == round(4 * each / 0.75) * batch
    lines = (tmp_path / "curve.jsonl").read_text().splitlines()
    assert [json.loads(line)["first"] for line in lines] == pytest.approx([0.2, 0.4, 0.6, 0.6])


def test_the_script_calls_each_stage(data: Path, tmp_path: Path) -> None:
    python, log, out = tmp_path / "python", tmp_path / "log", tmp_path / "out"
    python.write_text(f'#!/bin/sh\necho "$@" >> {log}\ntouch {out}/answers.txt.gz\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "PYTHON": str(python), "PROCESSES": "2", "KEPT": ""}
    environment |= {"NOT_IN": "a.jsonl", "THREADS": "1", "ASSETS": str(tmp_path / "assets")}
    (out / "answers").mkdir(parents=True)
    (out / "answers" / "answers.txt.gz").touch()
    subprocess.run(
        [str(RUNS / "train.sh"), str(data), str(out)], env=environment, check=True, timeout=60
    )
    called = log.read_text().splitlines()
    assert called[0].endswith(f"prompts.py {data} {out}/prompts.jsonl")
    made = [line for line in called if "train answers" in line]
    assert sum("--part 1/2" in line for line in made) == 1
    assert sum("--part 2/2" in line for line in made) == 1
    assert len(made) == 3
    harvest, _, trained, _, asked, counted, _ = called[-7:]
    assert f"harvest {out}/table.safetensors --model smollm2" in harvest
    assert f"--text {out}/answers/answers.txt.gz" in harvest
    assert "head.py" in trained
    assert asked.endswith("--skip 6144 --first 120 --plain")
    assert f"calibrate {out}/calibration.json" in counted
    assert "--dtype bfloat16 --max-new-tokens 256" in counted
    assert all("--not-in a.jsonl" in line for line in (*made, harvest, trained, counted))
    installed = [line.split()[1:4] for line in called if "install.py" in line]
    assert [part for part, *_ in installed] == ["table.safetensors", "head", "calibration.json"]
    assert {place for *_, place in installed} == {str(tmp_path / "assets")}
    assert sorted(path.name for path in (out / "text").iterdir()) == sorted(
        [*(f"{domain}.txt.gz" for domain in TEXTS), "answers.txt.gz"]
    )
    log.unlink()
    subprocess.run(
        [str(RUNS / "train.sh"), str(data), str(out), "medusa", "dflash"],
        env=environment,
        check=True,
        timeout=60,
    )
    medusa, dflash = log.read_text().splitlines()
    assert f"train medusa --out {out} --tokens 2000000" in medusa
    assert f"train dflash --out {out} --tokens 2000000" in dflash
    assert "--block 8" in dflash
    assert all("--not-in a.jsonl" in line for line in (medusa, dflash))
    wrong = subprocess.run(
        [str(RUNS / "train.sh"), str(data), str(out), "table4"],
        env=environment,
        check=False,
        timeout=60,
    )
    assert wrong.returncode == 2


def test_parts_are_installed_with_their_origin(tmp_path: Path) -> None:
    head = tmp_path / "head"
    head.mkdir()
    (head / "config.json").write_text("{}")
    (tmp_path / "t").write_text("table")
    install.install("table.safetensors", tmp_path / "t", tmp_path, ["harvest", "a b"])
    install.install("head", head, tmp_path, ["train"])
    home = tmp_path / "smollm2"
    assert (home / "table.safetensors").read_text() == "table"
    assert (home / "head" / "config.json").exists()
    record = json.loads((home / "provenance.json").read_text())
    assert record["table.safetensors"]["command"] == "harvest 'a b'"
    assert record["head"].keys() >= {"command", "code", "versions", "hardware", "sha256"}


def test_conversations_are_left_out_of_plain_prompts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "prompts.jsonl"
    words = ["prompts.py", str(data), str(out), "--count", "60", "--skip", "1", "--plain"]
    monkeypatch.setattr(sys, "argv", words)
    prompts.main()
    found = prompts.prompts(data, 60, seed=1)[1:]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prompt"] for row in rows] == [m[0]["content"] for _, m in found if len(m) == 1]
    assert len(rows) < len(found)


@pytest.mark.slow
def test_a_small_draft_is_distilled_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    text = "".join(f"the {n} cats sat\n<|endoftext|>\n" for n in range(2000))
    (data / "answers.txt.gz").write_bytes(gzip.compress(text.encode()))
    common = f"--data {data} --out {out} --mixture answers=1 --device cpu --length 32 --rows 4"
    sizes = "--hidden 16 --layers 4 --heads 4 --kv-heads 2 --head-dim 4 --ffn 24 --vocab-size 280"
    for command in (
        f"target {common} {sizes} --tokens 256",
        f"eagle3 {common} --tokens 256 --unroll 2 --draft-vocab 100",
    ):
        CliRunner().invoke(train, command.split(), catch_exceptions=False)
    target, head = out / "target/model", out / "eagle3/model"
    words = ["small_draft.py", str(data), str(out), str(head), "--model", str(target)]
    words += ["--mixture", "answers=1", "--tokens", "640", "--rows", "4", "--length", "32"]
    monkeypatch.setattr(sys, "argv", words)
    small_draft.main()
    record = json.loads((out / "small_draft/model/provenance.json").read_text())
    assert record["trained"]["updates"] == 5
    assert 0 <= record["draft"]["greedy"] <= 1
    assert 0 <= record["draft"]["accepted_tokens"] <= 4
    assert record["head"]["parameters_read"] > 0
    draft = models.load(out / "small_draft/model", dtype="float32", device="cpu")
    full = models.load(target, dtype="float32", device="cpu")
    drafts, targets = (
        each.model.state_dict()["model.embed_tokens.weight"] for each in (draft, full)
    )
    assert torch.equal(drafts, targets)
    method = draftwood.sd(draft=draft.model)
    drafted, plain = (
        draftwood.Engine(full.model, each).generate([draftwood.Request([5, 6, 7], 12)])[0].checked()
        for each in (method, "ar")
    )
    assert drafted.tokens == plain.tokens
    assert drafted.tally.steps <= plain.tally.steps
