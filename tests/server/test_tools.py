"""Tools that an answer must call, and how."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from draftwood.server.parsing import parser_maker, response_template
from draftwood.server.tools import CallForm, call_form
from tests.factories.running_server import Running, running, threads_of, tiny_engine
from tests.factories.tiny_llama import tiny_tokenizer

pytest.importorskip("transformers.utils.chat_parsing", reason="needs transformers 5.23")
pytest.importorskip("llguidance")

TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}<|im_start|>assistant\n"
)
QWEN = SimpleNamespace(config=SimpleNamespace(model_type="qwen3"))


def tool(name: str, *values: str, **more: Any) -> dict[str, Any]:
    """A function of one argument that takes some values."""
    parameters = {
        "type": "object",
        "properties": {"value": {"enum": values}},
        "required": ["value"],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


ALLOWED = {"add": ("one", "two"), "take": ("three",)}
TOOLS = [tool(name, *values) for name, values in ALLOWED.items()]
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Add."}],
    "tools": TOOLS,
    "max_tokens": 400,
    "temperature": 0,
    # The tiny model writes anything: the mark that begins its reasoning is made unlikely.
    "logit_bias": {"116": 100},
}


@pytest.fixture(scope="module")
def qwen() -> Iterator[Running]:
    """A tiny model that is taken for a Qwen 3."""
    tokenizer = tiny_tokenizer()
    form = call_form(response_template(tokenizer, QWEN))
    make = parser_maker(tokenizer, QWEN)
    engine = tiny_engine("goose:budget=8", tokenizer=tokenizer)
    with running(engine, template=TEMPLATE, parser=make, call_form=form) as found:
        yield found


@pytest.mark.skipif(
    Version(version("transformers")) < Version("5.23"),
    reason="the templates of older ones know no reasoning",
)
def test_the_forms_of_families() -> None:
    thinks = ("<think>", "</think>")
    for family, form in {
        "qwen2": CallForm("<tool_call>", "</tool_call>", thinks),
        "qwen3_moe": CallForm("<tool_call>", "</tool_call>", thinks),
        "qwen3_5": None,
        "gemma4": None,
        "llama": None,
    }.items():
        model = SimpleNamespace(config=SimpleNamespace(model_type=family))
        assert call_form(response_template(tiny_tokenizer(), model)) == form, family


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_that_is_named_is_called(qwen: Running, stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "take"}}
    client = qwen.client().chat.completions
    asked: Any = ASK | {"tool_choice": choice}
    if stream:
        chunks = list(client.create(model="tiny", stream=True, **asked))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        calls: Any = [call for delta in deltas for call in delta.tool_calls or ()]
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
    else:
        [found] = client.create(model="tiny", **asked).choices
        calls = found.message.tool_calls
        assert (found.finish_reason, found.message.content) == ("tool_calls", None)
    [call] = calls
    assert call.function.name == "take"
    assert json.loads(call.function.arguments) == {"value": "three"}


def test_some_function_is_called(qwen: Running) -> None:
    body = ASK | {"tool_choice": "required", "parallel_tool_calls": False}
    [choice] = qwen.client().chat.completions.create(model="tiny", **body).choices
    calls: Any = choice.message.tool_calls
    [call] = calls
    assert json.loads(call.function.arguments)["value"] in ALLOWED[call.function.name]
    assert choice.finish_reason == "tool_calls"


def test_calls_that_are_cut_off_are_not_complete(qwen: Running) -> None:
    """The model never ends by itself here."""
    bias = ASK["logit_bias"] | {str(each): -100 for each in qwen.service.eos}
    whole = []
    for tokens in (60, 90, 120, 160):
        body = ASK | {"tool_choice": "required", "max_tokens": tokens, "logit_bias": bias}
        [choice] = qwen.post("/v1/chat/completions", body | {"token_sources": True}).json()[
            "choices"
        ]
        assert choice["finish_reason"] == "length"
        written = "".join(token["text"] for token in choice["token_sources"])
        calls = choice["message"].get("tool_calls") or ()
        for call in calls:
            assert set(arguments := json.loads(call["function"]["arguments"])) == {"value"}
            assert arguments["value"] in ALLOWED[call["function"]["name"]]
        whole.append(written.count("</tool_call>"))
        assert len(calls) == whole[-1]
        cut = written.rpartition("</tool_call>")[2]
        assert (choice["message"].get("content") or "") in ("", cut)
    assert whole[0] == 0 < whole[-1]


def test_tools_are_not_checked_on_the_event_loop(
    qwen: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threads_of(monkeypatch, "draftwood.grammars.grammar.excess")
    assert qwen.post("/v1/chat/completions", ASK | {"tool_choice": "required"}).is_success
    assert threads
    assert qwen.thread.name not in threads


def test_an_answer_in_a_given_form_is_no_reasoning() -> None:
    """The prompt has begun the reasoning, and the form leaves no place for its end."""
    make = parser_maker(tiny_tokenizer(), QWEN)
    ask = {name: ASK[name] for name in ("messages", "max_tokens", "temperature")}
    form = {"structured_outputs": {"choice": ["yes", "no"]}}
    with running(tiny_engine("ar"), template=f"{TEMPLATE}<think>", parser=make) as server:
        [choice] = server.post("/v1/chat/completions", ask | form).json()["choices"]
        assert choice["message"]["content"] in ("yes", "no")
        [choice] = server.post("/v1/chat/completions", ask).json()["choices"]
        assert choice["message"]["reasoning_content"]


def test_without_a_need_the_model_is_free(qwen: Running) -> None:
    tools = [tool("add", "one", strict=True)]
    found = qwen.post("/v1/chat/completions", ASK | {"max_tokens": 12, "tools": tools}).json()
    [choice] = found["choices"]
    assert len(choice["message"]["content"]) > 6, "only a call is held to its schema"
    assert choice["finish_reason"] == "length"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"tool_choice": "some"}, "tool_choice", "give 'auto', 'none', 'required'"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice", "give 'auto'"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "mul"}}},
        "tool_choice",
        "the name of a tool (add, take)",
    ),
    ({"tool_choice": "required", "tools": []}, "tool_choice", "needs tools"),
    ({"tools": [TOOLS[0], TOOLS[0]]}, "tools", "two tools have the same name"),
    ({"tools": [tool("add", "one", strict="yes")]}, "tools", "give true or false"),
    ({"tools": [tool("add", "one", stricter=True)]}, "tools", "there is no 'stricter'"),
    ({"tools": [TOOLS[0] | {"strict": True}]}, "tools", "tools[0]: there is no 'strict'"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        "tools",
        "give a JSON schema",
    ),
    ({"tool_choice": "required", "ignore_eos": True}, "tool_choice", "ignore_eos"),
    (
        {
            "tools": [
                {"type": "function"}
                | {"function": {"name": "f", "strict": True, "parameters": {"type": "king"}}}
            ]
        },
        "tools",
        "is wrong",
    ),
    (
        {"tool_choice": "required", "response_format": {"type": "json_object"}},
        "response_format",
        "cannot be combined with tools",
    ),
]


@pytest.mark.parametrize(("change", "field", "words"), REFUSED)
def test_tools_that_cannot_be_honoured(
    qwen: Running, change: dict[str, Any], field: str, words: str
) -> None:
    found = qwen.post("/v1/chat/completions", ASK | change)
    assert found.status_code == 400
    error = found.json()["error"]
    assert error["param"] == field
    assert words in error["message"]


def test_calls_of_another_form_are_not_asked_for() -> None:
    make = parser_maker(tiny_tokenizer(), QWEN)
    with running(tiny_engine("ar"), template=TEMPLATE, parser=make) as server:
        for change, field in (
            ({"tool_choice": "required"}, "tool_choice"),
            ({"tools": [tool("add", "one", strict=True)]}, "tools"),
            ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ):
            found = server.post("/v1/chat/completions", ASK | change)
            assert found.status_code == 400
            assert found.json()["error"]["param"] == field
            assert "does not write its calls as JSON" in found.json()["error"]["message"]
