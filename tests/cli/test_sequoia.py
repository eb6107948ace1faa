"""``draftwood sequoia`` from end to end."""

import json
from pathlib import Path

import pytest

from tests.factories.command_line import run


def test_steps_are_timed_in_a_context_that_fits_the_model(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default does not, and is known not to once the prompts have been decoded."""
    monkeypatch.setattr("draftwood.lab.bench.ranks._SECONDS", 0.05)
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "tree.json"
    prompts.write_text('{"prompt": "abc abc abc "}\n')
    argv = ["sequoia", str(out), "--prompts", str(prompts), "--model", checkpoint]
    argv += ["--draft", checkpoint, "--max-new-tokens", "6", "--ranks", "2", "--nodes", "3"]
    for further, said in (([], True), (["--context", "300"], True), (["--context", "40"], False)):
        code, _, err = run(*argv, *further)
        assert code == 0, err
        assert ("steps are timed at 252 cached tokens" in err) == said
        assert len(json.loads(out.read_text())["target_ms"]) == 4
        out.unlink()
