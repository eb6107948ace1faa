"""A chat template that raises is refused in a sentence wherever it is applied."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwood.engine.session import Session
from draftwood.errors import DraftwoodError
from draftwood.lab.train.answer_spans import answer_marks
from draftwood.models.chat_template import apply_template
from tests.factories.command_line import refused
from tests.factories.tiny_llama import save_tiny, tiny_llama, tiny_tokenizer

TEMPLATE = "{{ raise_exception('no such role') }}"
MESSAGE = "the chat template does not take this conversation: no such role"


@pytest.fixture
def tokenizer() -> Any:
    found = tiny_tokenizer.__wrapped__(chat=False)
    found.chat_template = TEMPLATE
    return found


def test_what_a_template_raises_is_told(tokenizer: Any) -> None:
    with pytest.raises(DraftwoodError, match=MESSAGE):
        apply_template(tokenizer, [{"role": "user", "content": "a"}], tokenize=False)
    with pytest.raises(DraftwoodError, match=MESSAGE):
        Session(tiny_llama(), tokenizer, "ar").send("a")
    assert answer_marks(tokenizer) is None


def test_commands_end_in_one_line(tokenizer: Any, tmp_path: Path) -> None:
    place = str(save_tiny(tmp_path / "model"))
    tokenizer.save_pretrained(place)
    assert MESSAGE in refused("generate", "abc", "--chat", "--model", place)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "p1", "prompt": "abc"}) + "\n")
    argv = ("--prompts", str(prompts), "--model", place, "--max-new-tokens", "4")
    err = refused("record", *argv, "--out", str(tmp_path / "out"))
    assert f"prompt 'p1': {MESSAGE}" in err
