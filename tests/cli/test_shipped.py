"""Commands say which shipped parts a method uses, and can be told to use none."""

import json
import shutil
from pathlib import Path

import pytest

from draftwood.methods import shipped_models
from draftwood.policies.auto.calibration_file import load
from tests.factories.command_line import output_of, run
from tests.factories.shipped_model import NAME, ship_tiny

NOTE = f"auto uses what is shipped for {NAME}: head and calibration (shipped=off: nothing)"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shipped_models, "ASSETS", tmp_path / "assets")
    return ship_tiny(tmp_path / "assets")


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"id": "a", "task": "t", "prompt": "abcabcabcabc"}) + "\n")
    return str(path)


def test_generate_says_what_it_uses(home: Path, checkpoint: str) -> None:
    argv = ["generate", "abcabcabc", "--model", checkpoint, "--max-new-tokens", "6", "--json"]
    code, out, err = run(*argv)
    assert code == 0, err
    assert NOTE in err.splitlines()
    code, without, err = run(*argv, "--shipped", "off")
    assert code == 0, err
    assert "shipped" not in err
    assert json.loads(without)["tokens"] == json.loads(out)["tokens"]


def test_a_replay_leaves_out_a_head_that_was_not_recorded(
    home: Path, checkpoint: str, prompts: str, tmp_path: Path
) -> None:
    recording = str(tmp_path / "r.safetensors")
    asked = ["--prompts", prompts, "--max-new-tokens", "6"]
    output_of("record", "--model", checkpoint, *asked, "--out", recording)
    code, _, err = run("replay", recording, "--methods", "auto", "--harvest", "accepted")
    assert code == 0, err
    assert "auto: the shipped head is left out: the recording has no rows for it" in err
    code, _, err = run("replay", recording, "--methods", "auto:shipped=calibration")
    assert code == 0, err
    assert "shipped head" not in err


def test_calibrate_counts_with_the_shipped_head(
    home: Path, checkpoint: str, prompts: str, tmp_path: Path
) -> None:
    asked = ["--model", checkpoint, "--prompts", prompts, "--max-new-tokens", "6"]
    output = tmp_path / "mine.json"
    argv = ["calibrate", str(output), *asked, "--temperatures", "0"]
    assert "2 answers counted" in output_of(*argv)
    assert any(codes[2] for codes in load(output).counts["greedy"]), "of the head"
    assert json.loads(output.read_text())["model"]["family"] == "llama"
    shutil.rmtree(home / "head")
    shipped_models.shipped_models.cache_clear()
    assert "1 answers counted" in output_of(*argv)
