"""The run that measures what the memory adds to second answers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.recipe import Method
from runs.smollm2.memory import main


def prompts(path: Path, *texts: str) -> str:
    rows = [{"id": f"{path.stem}{i}", "task": "story", "prompt": t} for i, t in enumerate(texts)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def arguments(tmp_path: Path) -> list[str]:
    given = {
        "--model": "embedded",
        "--base": "auto:shipped=off:neural=",
        "--prompts": prompts(tmp_path / "a.jsonl", "The ship left the harbour.", "He said nothing"),
        "--unrelated": prompts(tmp_path / "b.jsonl", "There were three sisters"),
        "--max-new-tokens": "24",
        "--temperature": "0.0",
        "--threads": "1",
    }
    return [word for pair in given.items() for word in pair]


def test_second_answers_are_copied_from_the_first(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, arguments(tmp_path), catch_exceptions=False)
    found = json.loads(done.stdout)["memory_passes"]
    assert list(found) == ["first", "second", "unrelated"]
    again, once = found["second"], found["first"]
    assert again["with"]["accepted_from_memory"] > 0.3
    assert again["without"]["accepted_from_memory"] == 0.0
    assert again["with"]["tokens_per_forward"] > 1.3 * again["without"]["tokens_per_forward"]
    assert once["with"]["repeated_8grams"] == once["without"]["repeated_8grams"]


def test_an_answer_that_the_memory_changes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sampled drafts keep the distribution and not the tokens.
    def drawn(name: str) -> Method:
        return method("traversal" if "memory" in name else name)

    monkeypatch.setattr("runs.smollm2.memory.method", drawn)
    words = [*arguments(tmp_path), "--temperature", "1.0"]
    with pytest.raises(DraftwoodError, match="the memory changed the answer to a0"):
        CliRunner().invoke(main, words, catch_exceptions=False)
