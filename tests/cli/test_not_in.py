"""``--not-in``: commands that learn refuse text that shares words with evaluation prompts."""

import gzip
import json
from pathlib import Path

import pytest

from tests.factories.command_line import run

WORDS = " ".join(f"word{n}" for n in range(13))


def prompts(path: Path, text: str) -> str:
    path.write_text(
        json.dumps({"id": path.stem, "task": "t", "turns": [f"First {path.stem}.", text]}) + "\n"
    )
    return str(path)


@pytest.fixture
def evaluation(tmp_path: Path) -> str:
    return prompts(tmp_path / "evaluation.jsonl", f"Then: {WORDS.upper()}?")


COMMANDS = {
    "calibrate": ["c.json"],
    "record": ["--out", "r.rec"],
    "search": ["s.json", "--methods", "pld"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_prompts_that_settings_are_found_on_must_be_others(
    command: str, tmp_path: Path, evaluation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = [command, *COMMANDS[command], "--model", "nowhere/at/all", "--not-in", evaluation]
    shared = prompts(tmp_path / "shared.jsonl", f"{WORDS}.")
    code, _, err = run(*argv, "--prompts", shared)
    assert code == 2
    said = "prompt shared shares 'word0 word1"
    assert said in " ".join(err.split())
    assert "the evaluation prompt evaluation: leave the document out" in " ".join(err.split())
    # Others pass this check, and there is no such model.
    other = prompts(tmp_path / "other.jsonl", f"{WORDS.replace('word6', 'word')}.")
    _, _, err = run(*argv, "--prompts", other)
    assert "shares" not in err
    assert "nowhere" in err


@pytest.mark.parametrize("what", ["tokenizer", "target", "eagle3"])
def test_a_corpus_with_words_of_a_prompt_is_refused(
    what: str, tmp_path: Path, evaluation: str
) -> None:
    with gzip.open(tmp_path / "code.txt.gz", "wt") as file:
        file.write("\n<|endoftext|>\n".join(["one document", f"so {WORDS} it is", "more"]))
    out = tmp_path / "out"
    argv = ["--data", str(tmp_path), "--out", str(out), "--mixture", "code=1", "--device", "cpu"]
    code, _, err = run("train", what, *argv, "--not-in", evaluation)
    assert code == 2
    assert "code.txt.gz, document 2, shares 'word0 word1" in " ".join(err.split())
    assert not out.exists()
