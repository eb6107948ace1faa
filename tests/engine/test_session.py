"""A chat: its messages, and what its turns compute."""

from typing import Any

import pytest

import draftwood
from draftwood import DraftwoodError, Engine, Request, Session
from draftwood.engine.request import Delta

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def loaded() -> Any:
    found = draftwood.load("embedded")
    found.tokenizer.chat_template = TEMPLATE
    return found


def test_answers_are_those_to_the_whole_chat(loaded: Any) -> None:
    session = Session(loaded.model, loaded.tokenizer, "goose", system="You answer in one line.")
    plain = Engine(loaded.model, "ar", loaded.tokenizer)
    texts = ("Once upon a time there was a little girl.", "What did she do then?", "And then?")
    seen = [{"role": "system", "content": "You answer in one line."}]
    for text in texts:
        seen.append({"role": "user", "content": text})
        ids = loaded.tokenizer.apply_chat_template(
            seen, add_generation_prompt=True, return_dict=True
        )["input_ids"]
        answer = session.send(text, max_new_tokens=24)
        assert answer.prompt_tokens == len(ids)
        assert answer.tokens == plain.generate([Request(ids, 24)])[0].tokens
        seen.append({"role": "assistant", "content": answer.text})
        assert session.messages == seen
    # The answers are encoded anew, so that not all of their tokens need be the same.
    prompts, reused = session._engine.prefix_tokens
    assert reused > prompts // 3


def test_an_answer_that_is_left_early_is_not_in_the_chat(loaded: Any) -> None:
    session = Session(loaded.model, loaded.tokenizer, "goose")
    for event in session.stream("Once upon a time", max_new_tokens=50):
        if isinstance(event, Delta):
            break
    assert session.messages == []
    assert not session._engine.busy
    assert len(session.send("Once upon a time", max_new_tokens=5).tokens) == 5


def test_the_next_turn_ends_one_that_was_left_while_its_iterator_is_kept(loaded: Any) -> None:
    session = Session(loaded.model, loaded.tokenizer, "goose")
    left = session.stream("Once upon a time", max_new_tokens=50)
    assert any(isinstance(event, Delta) for event in left)
    answer = session.send("The end", max_new_tokens=5)
    assert session.messages == [
        {"role": "user", "content": "The end"},
        {"role": "assistant", "content": answer.text},
    ]
    alone = Session(loaded.model, loaded.tokenizer, "goose")
    assert answer.tokens == alone.send("The end", max_new_tokens=5).tokens
    assert list(left) == []
    assert len(session.messages) == 2


def test_what_is_wrong_is_refused_and_changes_nothing(loaded: Any) -> None:
    session = Session(loaded.model, loaded.tokenizer, "ar")
    with pytest.raises(DraftwoodError, match=r"no such setting.*max_tokens"):
        session.send("Once", max_tokens=5)
    with pytest.raises(DraftwoodError, match="ask for at least 1"):
        session.send("Once", max_new_tokens=0)
    assert session.messages == []
    loaded.tokenizer.chat_template = None
    with pytest.raises(DraftwoodError, match="needs a chat template"):
        Session(loaded.model, loaded.tokenizer)
