"""Commands hide transformers' progress bars while they load a model."""

import json
from pathlib import Path

import pytest
from transformers.utils.logging import enable_progress_bar, is_progress_bar_enabled

from tests.factories.command_line import output_of, run


@pytest.mark.parametrize("command", ["generate", "bench", "search", "inflate", "replay"])
def test_no_bars_of_transformers(command: str, checkpoint: str, tmp_path: Path) -> None:
    prompts, out, recording = tmp_path / "p.jsonl", tmp_path / "out.json", tmp_path / "a.rec"
    prompts.write_text(json.dumps({"prompt": "abc abc"}) + "\n")
    asked = ("--prompts", str(prompts), "--max-new-tokens", "4")
    model = ("--model", checkpoint)
    if command == "replay":
        output_of("record", *asked, *model, "--out", str(recording))
    # Refused after the model has been loaded.
    flags = ("--hidden", "--layers", "--heads", "--kv-heads", "--head-dim", "--ffn")
    smaller = tuple(word for flag in flags for word in (flag, "2"))
    argv = {
        "generate": ("abc", "--max-new-tokens", "2", *model),
        "bench": (*asked, *model, "--methods", "ar"),
        "search": (str(out), *asked, *model, "--methods", "pld", "--by", "mean_acceptance_length"),
        "inflate": (str(tmp_path / "large"), *model, *smaller),
        "replay": (str(recording), *model, "--methods", "goose"),
    }[command]
    enable_progress_bar()  # type: ignore[no-untyped-call]
    _, _, err = run(command, *argv)
    assert "Loading weights" not in err
    assert not is_progress_bar_enabled()
