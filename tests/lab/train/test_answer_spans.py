"""Answers in rows of chats: what follows the generation prompt, up to the end of the turn."""

from copy import deepcopy

import torch

from draftwood.lab.train.answer_spans import AnswerMarks, answer_marks
from tests.factories.tiny_llama import tiny_tokenizer

MARKS = AnswerMarks((7, 8), end=2)


def test_an_answer_reaches_from_its_mark_to_its_end() -> None:
    rows = torch.tensor([[7, 1, 7, 8, 5, 6, 2, 5, 7, 8, 9, 2]])
    inside = [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0]
    assert MARKS.followed_by_answer(rows).tolist() == [[bool(each) for each in inside]]


def test_an_end_without_a_begin_ends_nothing() -> None:
    rows = torch.tensor([[5, 2, 5, 2], [2, 7, 8, 5]])
    assert MARKS.followed_by_answer(rows).tolist() == [[False] * 4, [False, False, True, True]]


def test_a_row_may_be_shorter_than_the_mark() -> None:
    assert MARKS.followed_by_answer(torch.tensor([[7]])).tolist() == [[False]]


def test_the_marks_are_those_of_the_chat_template() -> None:
    tokenizer = deepcopy(tiny_tokenizer(chat=False))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<a>", "<end>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '<a>' + m['role'] + ':' + m['content'] + '<end>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<a>assistant:' }}{% endif %}"
    )
    marks = answer_marks(tokenizer)
    assert marks is not None
    chat = "<a>user:Hi<end><a>assistant:ab<end><a>user:Yes<end><a>assistant:c<end>"
    row = tokenizer.encode(chat, add_special_tokens=False)
    after = marks.followed_by_answer(torch.tensor([row]))[0].tolist()
    said = [each for each, inside in zip(row[1:], after, strict=False) if inside]
    assert tokenizer.decode(said) == "ab<end>c<end>"


def test_turns_that_no_special_token_ends_have_no_marks() -> None:
    assert answer_marks(tiny_tokenizer(chat=True)) is None


def test_without_a_template_there_are_no_marks() -> None:
    assert answer_marks(tiny_tokenizer(chat=False)) is None
