"""Answers that have the form that a client asks for, and forms that are refused."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal
from weakref import WeakKeyDictionary

import openai
import pytest
from pydantic import BaseModel

from draftwood.grammars.backends.llguidance import LlguidanceCompiler
from draftwood.grammars.grammar import Grammar
from draftwood.server.errors import ApiError
from draftwood.server.schemas.chat import ChatRequest
from draftwood.server.structured import grammar_of
from tests.factories.running_server import Running, running, threads_of, tiny_engine

pytest.importorskip("llguidance")

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["ab", "abc"]}, "size": {"type": "integer", "maximum": 9}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
MESSAGES: list[Any] = [{"role": "user", "content": "abc abc abc"}]


def chat(server: Running, **fields: Any) -> Any:
    body = {"messages": MESSAGES, "max_tokens": 80, "seed": 3, **fields}
    response = server.post("/v1/chat/completions", body)
    return response.status_code, response.json()


def text(server: Running, **fields: Any) -> str:
    status, found = chat(server, **fields)
    assert status == 200, found
    return str(found["choices"][0]["message"]["content"])


@pytest.mark.parametrize("temperature", [0, 1])
def test_json_of_a_schema(server: Running, temperature: float) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}
    for speculate in (True, False):
        fields = {"temperature": temperature, "speculate": speculate}
        answer = text(server, response_format=form, **fields)
        found = json.loads(answer)
        assert found["name"] in ("ab", "abc")
        assert found["size"] <= 9
        assert answer == text(server, structured_outputs={"json": SCHEMA}, **fields)


def test_openais_client_asks_for_json_of_a_schema(server: Running) -> None:
    client = server.client()
    ask: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 80, "seed": 3}
    ask["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True},
    }
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.finish_reason == "stop"
    found = json.loads(whole.message.content or "")
    assert found["name"] in ("ab", "abc")
    assert found["size"] <= 9
    chunks = client.chat.completions.create(**ask, stream=True)
    streamed = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(streamed) == whole.message.content
    wrong = {"name": "thing", "schema": {"type": "king"}}
    ask["response_format"] = {"type": "json_schema", "json_schema": wrong}
    with pytest.raises(openai.BadRequestError, match="king"):
        client.chat.completions.create(**ask)


class Thing(BaseModel):
    """A schema as programs write it."""

    name: Literal["ab", "abc"]
    size: bool


def test_openais_client_parses_an_answer(server: Running) -> None:
    found = server.client().chat.completions.parse(
        model="tiny", messages=MESSAGES, max_tokens=80, seed=3, response_format=Thing
    )
    parsed = found.choices[0].message.parsed
    assert isinstance(parsed, Thing)
    assert parsed.name in ("ab", "abc")


def test_the_choices_of_one_prompt(server: Running) -> None:
    _, found = chat(server, structured_outputs={"choice": ["yes", "no"]}, n=4, temperature=1)
    answers = [choice["message"]["content"] for choice in found["choices"]]
    assert set(answers) <= {"yes", "no"}
    assert {choice["finish_reason"] for choice in found["choices"]} == {"stop"}


def test_a_text_that_is_continued(server: Running) -> None:
    body = {"prompt": "abc ", "max_tokens": 20, "structured_outputs": {"regex": "[a-c]{3}-[0-9]"}}
    found = server.post("/v1/completions", body).json()
    answer = found["choices"][0]["text"]
    assert len(answer) == 5
    assert set(answer[:3]) <= set("abc")
    assert answer[3] == "-"


GRAMMARS = ['root ::= "x" | "yz"', 'start: "x" | "yz"', 'start: "x" | "yz"  // as start ::=']


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_a_grammar_of_either_form(server: Running, grammar: str) -> None:
    assert text(server, structured_outputs={"grammar": grammar}) in ("x", "yz")


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": "json"}, "response_format", "give an object"),
    ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "no schema"),
    ({"response_format": {"type": "text", "schema": {}}}, "response_format", "no 'schema'"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "king"}}}},
        "response_format",
        "king",
    ),
    ({"structured_outputs": {}}, "structured_outputs", "0 forms"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "2 forms"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs", "regex"),
    (
        {"structured_outputs": {"regex": "("}, "response_format": {"type": "text"}},
        "structured_outputs",
        "regex",
    ),
    ({"structured_outputs": {"choice": []}}, "structured_outputs", "options"),
    (
        {"structured_outputs": {"grammar": '{"grammars": [{"lark_grammar": "start: /a/"}]}'}},
        "structured_outputs",
        "(lark)",
    ),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs", "give true"),
    (
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs",
        "give one",
    ),
    ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "structured_outputs", "ignore"),
]


@pytest.mark.parametrize(("fields", "param", "says"), WRONG)
def test_what_is_wrong_is_said(
    server: Running, fields: dict[str, Any], param: str, says: str
) -> None:
    for path, asked in (
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/completions", {"prompt": "abc"}),
    ):
        response = server.post(path, {"max_tokens": 80, **asked, **fields})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == param
        assert says in error["message"]


def nested(depth: int) -> dict[str, Any]:
    """A schema that spells out as many objects as two to the depth."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema, "b": schema}}
    return schema


BOMBS = {
    "repeated": {"regex": "((((a{1,99}){1,99}){1,99}){1,99}){1,99}"},
    "wide": {"json": {"type": "object", "properties": {f"p{i}": {"anyOf": [
        {"type": "object", "properties": {f"q{k}": {"pattern": "^(a|b)*c{50}$"} for k in range(40)}}
    ]} for i in range(400)}}},
    "endless": {"json": {"$ref": "#"}},
    "deep": {"json": nested(12)},
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_large_grammars_hold_nobody_up(
    server: Running, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served from before such a grammar is compiled until after."""
    begun, served = threading.Event(), threading.Event()
    compiled = LlguidanceCompiler._compile

    def held(self: LlguidanceCompiler, grammar: Grammar) -> Any:
        begun.set()
        try:
            return compiled(self, grammar)
        finally:
            assert served.wait(60), "nobody is served meanwhile"

    monkeypatch.setattr(LlguidanceCompiler, "_compile", held)
    # The method of compilers that are made already is bound.
    monkeypatch.setattr("draftwood.grammars.compilers._made", WeakKeyDictionary())
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(chat, server, structured_outputs=BOMBS[name], max_tokens=5)
        assert begun.wait(60)
        assert server.get("/health").is_success
        plain = {"prompt": "abc", "max_tokens": 5, "ignore_eos": True}
        assert server.post("/v1/completions", plain).json()["usage"]["completion_tokens"] == 5
        assert not large.done()
        served.set()
        status, _ = large.result()
    assert status in (200, 400)


KILLERS: dict[str, dict[str, Any]] = {
    "references": {"json": {"$ref": "#/$defs/0", "$defs": {
        str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(3000)}}},
    "rules": {"grammar": "start: r0\n" + "".join(f'r{i}: r{i + 1} | "x"\n' for i in range(3000))},
    "alternatives": {"grammar": "start: a" + "|a" * 100_000 + '\na: "x"'},
}  # fmt: skip


@pytest.mark.parametrize("name", KILLERS)
def test_grammars_that_would_end_the_process_are_refused(server: Running, name: str) -> None:
    status, found = chat(server, structured_outputs=KILLERS[name], max_tokens=5)
    assert (status, found["error"]["param"]) == (400, "structured_outputs")
    assert "at most" in found["error"]["message"]


def test_a_grammar_that_its_library_gives_up_is_the_clients(server: Running) -> None:
    status, found = chat(server, structured_outputs={"regex": "a{100000}"}, max_tokens=5)
    assert status == 400
    assert "too many expressions" in found["error"]["message"]


def test_the_engine_finds_a_grammar_compiled(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_ = "draftwood.grammars.backends.llguidance.LlguidanceCompiler._compile"
    threads = threads_of(monkeypatch, compile_)
    # The method of compilers that are made already is bound.
    monkeypatch.setattr("draftwood.grammars.compilers._made", WeakKeyDictionary())
    status, _ = chat(server, structured_outputs={"regex": "abc|def"}, max_tokens=5)
    assert status == 200
    assert len(threads) == 1
    assert threads[0].startswith("draftwood-grammars")


def test_a_form_is_not_checked_on_the_event_loop(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threads_of(monkeypatch, "draftwood.grammars.grammar.excess")
    form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}
    assert text(server, response_format=form)
    body = {"prompt": "abc", "max_tokens": 80, "structured_outputs": {"json": SCHEMA}}
    assert server.post("/v1/completions", body).is_success
    assert threads
    assert server.thread.name not in threads


def test_other_fields_have_no_grammar() -> None:
    assert grammar_of(ChatRequest(messages=[])) is None
    assert grammar_of(ChatRequest(messages=[], response_format={"type": "text"})) is None


def test_tools_that_are_not_to_be_called_leave_a_grammar_alone() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    fields: dict[str, Any] = {"structured_outputs": {"regex": "a"}, "tools": tools}
    assert grammar_of(ChatRequest(messages=[], tool_choice="none", **fields))
    with pytest.raises(ApiError, match="cannot be combined with ignore_eos"):
        grammar_of(ChatRequest(messages=[], tool_choice="none", ignore_eos=True, **fields))


def test_a_field_of_a_schema_may_have_the_name_of_a_keyword() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}}
    assert grammar_of(ChatRequest(messages=[], structured_outputs={"json": schema}))


def test_clients_with_different_keys_share_no_prefix() -> None:
    with running(tiny_engine("ar", prefix_cache="1MB"), api_keys=("one", "two")) as server:
        body = {"prompt": "abc " * 20, "max_tokens": 3}

        def reused(key: str) -> int:
            before = server.service.thread.engine.prefix_tokens[1]
            headers = {"Authorization": f"Bearer {key}"}
            found = server.post("/v1/completions", body, headers=headers)
            assert found.status_code == 200
            copied = server.service.thread.engine.prefix_tokens[1] - before
            details = found.json()["usage"]["prompt_tokens_details"]
            assert details == {"cached_tokens": copied}
            return copied

        assert [reused(key) > 0 for key in ("one", "two", "one", "two")] == [
            False,
            False,
            True,
            True,
        ]
