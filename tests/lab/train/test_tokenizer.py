"""The shared tokenizer: lossless for any text, and dialogue as the corpus writes it."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.exceptions import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.lab.train.tokenizer import bytes_per_token, load_tokenizer, train_tokenizer

SMALL = train_tokenizer(["def f(x):\n    return x + 12\n"] * 20, 280)


@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    ids = SMALL(text)["input_ids"]
    assert SMALL.decode(ids) == text
    assert sum(bytes_per_token(SMALL)[i] for i in ids) == len(text.encode())


def test_saved_tokenizer_loads_by_itself(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "def alpha(beta, n=42):\n    return 'naïve — 漢字 🌲'\n"
    assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert loaded.chat_template == tokenizer.chat_template


def test_end_of_text_is_token_zero(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == 0
    assert tokenizer("a<|endoftext|>b")["input_ids"].count(0) == 1
    assert 0 not in tokenizer("plain text")["input_ids"]
    assert bytes_per_token(tokenizer)[0] == 0


def test_digits_stand_alone(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = tokenizer("n=1234567")["input_ids"]
    assert [tokenizer.decode([i]) for i in ids][-7:] == list("1234567")


ASKED = [
    ("user", "Hello there."),
    ("assistant", "Hi."),
    ("user", "Code?"),
]
TURNS = "User: Hello there.\n\nAssistant: Hi.\n\nUser: Code?\n\nAssistant:"


@pytest.mark.parametrize(
    ("turns", "answer", "text"),
    [
        (ASKED, True, TURNS),
        ([*ASKED, ("assistant", "\n```\npass\n```")], False, TURNS + "\n```\npass\n```"),
        ([("system", "Be kind."), ("user", "Hi.")], False, "Be kind.\n\nUser: Hi."),
        ([("tool", "x")], False, None),
    ],
)
def test_chat_template_writes_turns(
    tokenizer: PreTrainedTokenizerFast,
    turns: list[tuple[str, str]],
    answer: bool,
    text: str | None,
) -> None:
    messages = [{"role": role, "content": content} for role, content in turns]
    refused = pytest.raises(TemplateError, match="Roles") if text is None else nullcontext()
    with refused:
        found = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=answer
        )
        assert found == text


def test_a_vocabulary_holds_all_bytes() -> None:
    with pytest.raises(DraftwoodError, match="257"):
        train_tokenizer(["text"], 200)


def test_a_directory_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="train the tokenizer first"):
        load_tokenizer(tmp_path)
