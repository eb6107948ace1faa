"""Encoding turns: answers become context, templates apply where they should, lengths are held."""

from dataclasses import replace

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.prompts import Prompt
from tests.factories.tiny_llama import tiny_tokenizer

PLAIN = Prompt("p", "t", "s", ("def f():",))
DIALOGUE = Prompt("d", "t", "s", ("Hi", "And?"), dialogue=True)


def contexts(
    *,
    template: bool = True,
    chat: bool | None = None,
    truncate: int | None = None,
    limit: int = 256,
) -> Contexts:
    tokenizer = tiny_tokenizer(chat=template)
    return Contexts(tokenizer, limit, 16, chat=chat, truncate=truncate)


def text(made: Contexts, prompt: Prompt, *answers: str) -> str:
    ids = [tiny_tokenizer().encode(answer) for answer in answers]
    return str(tiny_tokenizer().decode(list(made.after(prompt, ids).ids)))


def test_a_plain_prompt_is_its_text() -> None:
    assert text(contexts(template=False), PLAIN) == "def f():"
    assert text(contexts(chat=False), PLAIN) == "def f():"


@pytest.mark.parametrize("chat", [True, None])
def test_with_a_template_it_is_the_users_turn(chat: bool | None) -> None:
    assert text(contexts(chat=chat), PLAIN) == "User: def f():\n\nAssistant:"


def test_a_text_to_be_continued_is_left_alone_unless_asked() -> None:
    continued = replace(PLAIN, completion=True)
    assert text(contexts(), continued) == "def f():"
    assert text(contexts(chat=True), continued) == "User: def f():\n\nAssistant:"


@pytest.mark.parametrize("template", [True, False])
def test_the_second_turn_has_the_first_answer_in_its_context(template: bool) -> None:
    made = contexts(template=template)
    assert text(made, DIALOGUE) == "User: Hi\n\nAssistant:"
    wanted = "User: Hi\n\nAssistant: Hello you\n\nUser: And?\n\nAssistant:"
    assert text(made, DIALOGUE, " Hello you\n") == wanted


def test_an_end_token_stays_out_of_the_context() -> None:
    answer = [*tiny_tokenizer().encode("ok"), 256]
    ids = contexts().after(DIALOGUE, [answer]).ids
    assert 256 not in ids


def test_no_chat_writes_a_transcript_although_there_is_a_template() -> None:
    made = contexts(chat=False)
    assert text(made, DIALOGUE, "Yes").startswith("User: Hi\n\nAssistant: Yes")


def test_chat_needs_a_template() -> None:
    with pytest.raises(DraftwoodError, match="no chat template"):
        contexts(template=False, chat=True)


def test_refuses_prompts_that_may_outgrow_the_context() -> None:
    long = Prompt("long", "t", "s", ("x" * 241,))
    contexts(chat=False).check([PLAIN, DIALOGUE, Prompt("fits", "t", "s", ("x" * 240,))])
    with pytest.raises(DraftwoodError, match="'long' takes up to 241 tokens"):
        contexts(chat=False).check([long])
    # The first answer counts at its full length: alone, these turns would fit.
    talk = Prompt("talk", "t", "s", ("x" * 100, "y" * 90), dialogue=True)
    with pytest.raises(DraftwoodError, match="'talk'"):
        contexts().check([talk])


def test_truncate_keeps_the_last_tokens() -> None:
    made = contexts(truncate=8, chat=False)
    long = Prompt("long", "t", "s", ("x" * 300 + "theend",))
    made.check([long])
    context = made.after(long, [])
    assert context.cut
    assert tiny_tokenizer().decode(list(context.ids)) == "xxtheend"
    assert not made.after(Prompt("p", "t", "s", ("12345678",)), []).cut


def test_a_later_turn_never_exceeds_the_context() -> None:
    context = contexts().after(DIALOGUE, [tiny_tokenizer().encode("y" * 300)])
    assert context.cut
    assert len(context.ids) == 240


@pytest.mark.parametrize(("limit", "truncate"), [(16, None), (64, 49)])
def test_refuses_settings_that_leave_no_room(limit: int, truncate: int | None) -> None:
    with pytest.raises(DraftwoodError, match="exceed the model's context"):
        contexts(limit=limit, truncate=truncate)
