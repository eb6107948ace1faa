"""Answers that are parsed into text, reasoning and tool calls, through transformers' parser."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from draftwood.server.parsing import (
    AnswerParser,
    Call,
    Part,
    Reasoning,
    Text,
    parser_maker,
    response_template,
    tag_tokens,
)
from tests.factories.running_server import running, tiny_engine
from tests.factories.tiny_llama import tiny_tokenizer

pytest.importorskip("transformers.utils.chat_parsing", reason="needs transformers 5.23")

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "add", "arguments": {"a": }}\n</tool_call> and more'
TEXT = f"<think>\nFirst think.\n</think>\n\nI add.\n{CALL}"
ASSISTANT = "<|im_start|>assistant\n"


def parser(
    prompt: str = ASSISTANT, tools: Sequence[dict[str, Any]] = TOOLS, family: str = "qwen3"
) -> AnswerParser:
    """That of a family of models."""
    model = SimpleNamespace(config=SimpleNamespace(model_type=family))
    make = parser_maker(tiny_tokenizer(), model)
    assert make is not None
    return make(prompt, tools)


def xml_parser() -> AnswerParser:
    """One of calls in XML."""
    return parser(family="qwen3_5")


def parts_of(text: str, size: int, found: AnswerParser | None = None) -> list[Part]:
    """All parts of a text that comes in pieces of a size."""
    found = found or parser()
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    return [part for piece in pieces for part in found.feed(piece)] + found.finish()


def joined(parts: list[Part], kind: type[Text] | type[Reasoning]) -> str:
    return "".join(part.text for part in parts if isinstance(part, kind))


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_the_parts_do_not_depend_on_the_pieces(size: int) -> None:
    parts = parts_of(TEXT, size)
    assert joined(parts, Reasoning).strip() == "First think."
    assert joined(parts, Text).strip() == "I add."
    [call] = [part for part in parts if isinstance(part, Call)]
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 1})
    assert call.id.startswith("call_")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9, 1000])
def test_a_call_that_is_cut_off_stays_text(size: int) -> None:
    begun = '\n<tool_call>\n{"name": "add", "arguments":'
    parts = parts_of(f"Well.{CALL}{begun}", size)
    assert len([part for part in parts if isinstance(part, Call)]) == 1
    assert joined(parts, Text) == f"Well.{begun}"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9, 1000])
@pytest.mark.parametrize(
    "cut", ["<parameter=b>\nhal", "<parameter=b>\nhalf\n</parameter>\n", "</function>\n</tool_c"]
)
def test_a_call_in_xml_that_is_cut_off_stays_text(cut: str, size: int) -> None:
    call = "<tool_call>\n<function=add>\n<parameter=a>\n7\n</parameter>\n"
    whole = f"{call}</function>\n</tool_call>"
    parts = parts_of(f"Well.\n{whole}\n{call}{cut}", size, xml_parser())
    [found] = [part for part in parts if isinstance(part, Call)]
    assert json.loads(found.arguments) == {"a": 7}
    assert joined(parts, Text) == f"Well.\n{call}{cut}"
    [last] = parts_of(whole, size, xml_parser())
    assert isinstance(last, Call)


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    "said", ["</tool_call>", 'a "</tool_call>" \\', "</tool_call></tool_call>"]
)
def test_a_call_may_speak_of_its_own_end(said: str, size: int) -> None:
    call = json.dumps({"name": "add", "arguments": {"a": said}})
    parts = parts_of(f"Well.<tool_call>\n{call}\n</tool_call>{CALL}", size)
    found = [json.loads(part.arguments) for part in parts if isinstance(part, Call)]
    assert found == [{"a": said}, {"a": 1}]
    assert joined(parts, Text) == "Well."
    begun = f"<tool_call>\n{call[:-3]}</tool_call>"
    assert parts_of(begun, size) == [Text(begun)], "its string has no end"


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_strings_of_another_form_may_have_quotes(size: int) -> None:
    text = '<|tool_call>call:add{a:<|"|>a 5" pipe<|"|>}<tool_call|>'
    [call] = parts_of(text, size, parser("<|turn>model\n", family="gemma4"))
    assert isinstance(call, Call)
    assert json.loads(call.arguments) == {"a": 'a 5" pipe'}


def test_a_quote_that_is_missing_holds_nothing_back() -> None:
    broken = '<tool_call>\n{"name": "add", "arguments": {"a": "x}}\n</tool_call>'
    found = parser()
    parts = [part for piece in (broken, " And so", " on.") for part in found.feed(piece)]
    assert joined(parts, Text) == f"{broken} And so on."


@pytest.mark.parametrize("size", [3, 11])
def test_a_call_that_is_no_json_stays_text(size: int) -> None:
    parts = parts_of(f"Well. {BROKEN}", size)
    assert not any(isinstance(part, Call) for part in parts)
    assert joined(parts, Text) == f"Well. {BROKEN}"


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("text", ["", "I add.", "\n\nI add.", f"I add. {BROKEN}", CALL])
def test_the_end_of_the_prompt_is_no_part_of_the_answer(text: str, size: int) -> None:
    """A prompt without reasoning ends with white space, with which a delimiter may begin."""
    prompt = f"{ASSISTANT}<think>\n\n</think>\n\n"
    parts = parts_of(text, size, parser(prompt))
    assert joined(parts, Text) == ("" if text == CALL else text)
    assert any(isinstance(part, Call) for part in parts) == (text == CALL)


@pytest.mark.parametrize("size", [1, 1000])
def test_without_tools_a_call_stays_text(size: int) -> None:
    text = f"Well. {CALL} So."
    parts = parts_of(text, size, parser(tools=()))
    assert not any(isinstance(part, Call) for part in parts)
    assert joined(parts, Text) == text


@pytest.mark.parametrize("name", ["7", '"\\ud800"'])
def test_a_call_that_cannot_be_sent_stays_text(name: str) -> None:
    text = f'<tool_call>\n{{"name": {name}, "arguments": {{}}}}\n</tool_call>'
    assert parts_of(text, 1000) == [Text(text)]


@pytest.mark.parametrize("arguments", ['"hello"', '{"a": NaN}'])
def test_a_call_whose_arguments_are_no_json_stays_text(arguments: str) -> None:
    text = f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'
    assert parts_of(text, 1000) == [Text(text)]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize("begun", ["", "<think>\n"])
def test_tags_of_a_thought_in_an_answer_are_text(size: int, begun: str) -> None:
    said = 'Use re.sub(r"<think>.*?</think>", "", s), or look for <think> alone. <'
    thought = "Let me see.\n</think>\n\n" if begun else "<think>Let me see.</think>\n\n"
    parts = parts_of(f"{thought}{said}", size, parser(f"{ASSISTANT}{begun}"))
    assert joined(parts, Reasoning).strip() == "Let me see."
    assert joined(parts, Text).strip() == said
    parts = parts_of(f"{said}{CALL}", size)
    assert joined(parts, Text) == said
    assert [type(part) for part in parts][-1] is Call


def test_without_tools_text_about_calls_comes_at_once() -> None:
    found = parser(tools=())
    assert joined(found.feed("The form is <tool_call> and then some JSON"), Text).endswith("JSON")


def test_arguments_in_json_keep_their_types() -> None:
    properties = {
        "q": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "zip": {"type": ["string", "integer"]},
    }
    parameters = {"type": "object", "properties": properties}
    tools = [{"type": "function", "function": {"name": "find", "parameters": parameters}}]
    given = {"q": "null", "zip": "02134"}
    call = json.dumps({"name": "find", "arguments": given})
    parts = parts_of(f"<tool_call>\n{call}\n</tool_call>", 1000, parser(tools=tools))
    [found] = [part for part in parts if isinstance(part, Call)]
    assert json.loads(found.arguments) == given


def test_values_in_xml_get_their_types_from_the_schema() -> None:
    call = "<function=add>\n<parameter=a>\n7\n</parameter>\n</function>"
    parts = parts_of(f"<tool_call>\n{call}\n</tool_call>", 1000, xml_parser())
    [found] = [part for part in parts if isinstance(part, Call)]
    assert json.loads(found.arguments) == {"a": 7}


@pytest.mark.parametrize("value", ["    if x:\n        return 1\n", "", "\n", "a", " \n a \n"])
def test_values_in_xml_keep_their_white_space(value: str) -> None:
    call = f"<function=add>\n<parameter=text>\n{value}\n</parameter>\n</function>"
    parts = parts_of(f"<tool_call>\n{call}\n</tool_call>", 1000, xml_parser())
    [found] = [part for part in parts if isinstance(part, Call)]
    assert json.loads(found.arguments) == {"text": value}


def test_arguments_are_written_without_escapes() -> None:
    call = json.dumps({"name": "add", "arguments": {"a": "Grüße", "b": 10**30}})
    [found] = parts_of(f"<tool_call>{call}</tool_call>", 1000)
    assert isinstance(found, Call)
    assert found.arguments == '{"a": "Grüße", "b": 1000000000000000000000000000000}'


@pytest.mark.parametrize("asked", ["Explain <tool_call>x</tool_call>", "a <tool_call>", "<think>"])
def test_what_a_user_says_in_a_prompt_of_another_form_is_not_parsed(asked: str) -> None:
    parts = parts_of("Well, so.", 1000, parser(f"<|User|>{asked}<|Assistant|>"))
    assert joined(parts, Text) == "Well, so."
    assert not joined(parts, Reasoning)
    found = parser(f"<|User|>{asked}<|Assistant|><think>\n")
    parts = parts_of("I see.</think>Well.", 1000, found)
    assert (joined(parts, Reasoning).strip(), joined(parts, Text)) == ("I see.", "Well.")


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_what_looks_like_the_end_of_an_answer_is_text(size: int) -> None:
    text = "A turn ends with <|im_end|> in this form. "
    parts = parts_of(f"{text}{CALL}", size)
    assert joined(parts, Text).rstrip() == text.rstrip()
    assert [type(part) for part in parts][-1] is Call


def test_the_tags_are_the_special_tokens_of_reasoning_and_calls() -> None:
    tokenizer = tiny_tokenizer()
    names = ["<think>", "<tool_call>", "<|im_end|>", "<|tool_call>", "<unknown>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    tokenizer.add_tokens(["</think>"])
    ids = dict(zip(names, map(tokenizer.convert_tokens_to_ids, names), strict=True))

    def tags(family: str) -> frozenset[int]:
        model = SimpleNamespace(config=SimpleNamespace(model_type=family))
        return tag_tokens(tokenizer, response_template(tokenizer, model))

    assert tags("qwen3") == {ids["<think>"], ids["<tool_call>"]}
    assert tags("gemma4") == {ids["<|tool_call>"]}, "it is spelt in a regular expression"
    assert tags("llama") == set()


def test_a_model_of_no_known_family_answers_with_text() -> None:
    model = SimpleNamespace(config=SimpleNamespace(model_type="llama"))
    assert parser_maker(tiny_tokenizer(), model) is None


TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments.a }}{% endfor %};{% endfor %}"
    "<|im_start|>assistant"
)
ASK: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "Add."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function"}
                | {"function": {"name": "add", "arguments": '{"a": 7}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "8"},
    ],
    "tools": TOOLS,
    "max_tokens": 12,
    "temperature": 0,
}


class Scripted:
    """A parser that makes a call of the whole answer."""

    def __init__(self) -> None:
        self.text = ""

    def feed(self, piece: str) -> list[Part]:
        self.text += piece
        return [Reasoning(piece)] if piece else []

    def finish(self) -> list[Part]:
        return [Call("add", json.dumps({"text": self.text}), "call_1")]


def test_calls_of_an_answer_and_of_a_stream() -> None:
    seen: list[tuple[str, Any]] = []

    def make(prompt: str, tools: Any) -> AnswerParser:
        seen.append((prompt, tools))
        return Scripted()

    engine = tiny_engine("goose:budget=8")
    with running(engine, template=TEMPLATE, parser=make) as server:
        found = server.client().chat.completions.create(model="tiny", **ASK)
        [choice] = found.choices
        assert seen == [
            ("add;user:Add.;assistant:7;tool:8;<|im_start|>assistant", TOOLS),
        ]
        # It was cut off, and further calls may be missing.
        assert choice.finish_reason == "length"
        assert choice.message.content is None
        calls: Any = choice.message.tool_calls
        said = json.loads(calls[0].function.arguments)["text"]
        assert choice.message.model_extra is not None
        assert choice.message.model_extra["reasoning_content"] == said
        chunks = list(server.client().chat.completions.create(model="tiny", stream=True, **ASK))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        assert "".join((d.model_extra or {}).get("reasoning_content", "") for d in deltas) == said
        [streamed] = [call for d in deltas for call in d.tool_calls or ()]
        assert streamed.function is not None
        assert (streamed.index, streamed.id) == (0, "call_1")
        assert streamed.function.arguments == calls[0].function.arguments
        assert chunks[-1].choices[0].finish_reason == "length"
        none = server.post("/v1/chat/completions", ASK | {"tool_choice": "none"})
        said = none.json()["choices"][0]["message"]["reasoning_content"]
        assert seen[-1] == ("user:Add.;assistant:7;tool:8;<|im_start|>assistant", ())
        raw = server.post("/v1/chat/completions", ASK | {"skip_special_tokens": False})
        assert "skip_special_tokens" in raw.json()["error"]["message"]
        body = ASK | {"skip_special_tokens": False, "tool_choice": "none"}
        raw = server.post("/v1/chat/completions", body)
        assert raw.json()["choices"][0]["message"]["content"] == said


def test_arguments_that_no_text_can_hold_are_the_clients() -> None:
    ask: Any = json.loads(json.dumps(ASK))
    function = ask["messages"][1]["tool_calls"][0]["function"]
    with running(tiny_engine("ar"), template=TEMPLATE, parser=lambda *_: Scripted()) as server:
        for arguments in ('{"a": "\\ud800"}', '{"a": NaN}', '{"a": '):
            function["arguments"] = arguments
            for path in ("/v1/chat/completions", "/tokenize"):
                body = ask if "chat" in path else {"messages": ask["messages"]}
                found = server.post(path, body)
                assert found.status_code == 400, found.text
                assert "the arguments of 'add' are not JSON" in found.json()["error"]["message"]


def test_tools_are_refused_where_calls_cannot_be_told_from_text() -> None:
    with running(tiny_engine("ar"), template=TEMPLATE) as server:
        found = server.post("/v1/chat/completions", ASK)
        assert found.status_code == 400
        assert "no response template" in found.json()["error"]["message"]
