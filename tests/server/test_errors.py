"""Bodies that are no requests, unknown paths, limits and keys."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import openai
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from draftwood.server.app import application
from draftwood.server.service import started
from draftwood.server.settings import ServeSettings
from draftwood.server.text import TextWorker
from tests.factories.running_server import Running, running, threads_of, tiny_engine
from tests.factories.tiny_llama import tiny_tokenizer


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"prompt": "a", }', "not valid JSON"),
        (b"[1]", "the body: expected 'object', got 'array'"),
        (b'{"prompt": "\xff"}', "not valid UTF-8"),
        (b'{"prompt": "\\ud800"}', "not valid JSON"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "prompt"),
        (b"{}", "the body: object missing required field 'prompt'"),
        (b'{"prompt": [1, "a"]}', "give text, token ids"),
        (b'{"prompt": []}', "give text, token ids"),
        (b'{"prompt": [[]]}', "the prompt is empty"),
        (b'{"prompt": ""}', "the prompt is empty"),
        (b'{"prompt": [999]}', "token ids are 0 to 259"),
        (b'{"prompt": "a", "stop_token_ids": [-1]}', "stop_token_ids holds -1"),
        (b'{"prompt": "a", "echo": true, "logprobs": 1}', "echo with logprobs"),
        (b'{"prompt": "a", "best_of": 3}', "best_of"),
        (b'{"prompt": "a", "suffix": "b"}', "suffix"),
        (b'{"prompt": "a", "logprobs": 21}', "0 to 20"),
        (b'{"prompt": "a", "max_tokens": 1.5}', "max_tokens"),
        (b'{"prompt": "a", "stop": [""]}', "stop string must not be empty"),
    ],
)
def test_bodies_that_are_refused(server: Running, content: bytes, words: str) -> None:
    found = server.post("/v1/completions", content=content)
    assert found.status_code == 400, found.text
    assert words in found.json()["error"]["message"]


def test_what_a_client_sent_is_not_sent_back_in_full(server: Running) -> None:
    long = "ab" * 500_000
    for body, words in (
        ({"prompt": "a", long: 1}, "unknown field"),
        ({"prompt": "a", "model": long}, "does not exist"),
        ({"prompt": "a", "response_format": {"type": long}}, "response_format"),
    ):
        found = server.post("/v1/completions", body)
        assert found.status_code in (400, 404)
        assert words in found.json()["error"]["message"]
        assert len(found.content) < 4096
    nested = server.post("/v1/completions", {"prompt": "a", "stream_options": {long: 1}})
    assert "unknown field" in nested.json()["error"]["message"]


def test_a_prompt_that_cannot_fit_is_not_tokenized(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise AssertionError("it is tokenized")

    monkeypatch.setattr(TextWorker, "encode", fails)
    # The longest name of a token has a few bytes.
    for path, body in (
        ("/v1/completions", {"prompt": "ab " * 20_000}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "ab " * 20_000}]}),
    ):
        found = server.post(path, body)
        error = found.json()["error"]
        assert (found.status_code, error["code"]) == (400, "context_length_exceeded"), error
        assert error["param"] == next(iter(body))
        assert "more than the 2048 tokens of the context can hold" in error["message"]


def test_tokens_that_cannot_fit_are_not_decoded(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise AssertionError("they are decoded")

    monkeypatch.setattr(TextWorker, "decode", fails)
    found = server.post("/v1/completions", {"prompt": [97] * 3000, "echo": True})
    assert found.status_code == 400
    assert found.json()["error"]["code"] == "context_length_exceeded"


def test_tokens_are_not_checked_on_the_event_loop(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threads_of(monkeypatch, "draftwood.server.routes.tokens.check_ids")
    assert server.post("/detokenize", {"tokens": [97]}).is_success
    assert [name.startswith("draftwood-text") for name in threads] == [True]


def test_no_prompt_waits_for_texts_that_are_only_tokenized(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, let_go = Event(), Event()

    def decode(_: TextWorker, tokens: Sequence[int]) -> str:
        held.set()
        assert let_go.wait(10)
        return str(tokens)

    monkeypatch.setattr(TextWorker, "decode", decode)
    monkeypatch.setattr(server.service.tokenizing, "_most", 2)
    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(server.post, "/detokenize", {"tokens": [7]})
        assert held.wait(10)
        waiting = pool.submit(server.post, "/tokenize", {"prompt": "a"})
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).is_success
        while server.service.tokenizing._taken < 2:
            time.sleep(0.01)
        full = server.post("/tokenize", {"prompt": "a"})
        assert (full.status_code, full.json()["error"]["code"]) == (429, "queue_full")
        assert not waiting.done()
        let_go.set()
        assert holding.result().json() == {"prompt": "[7]"}
        assert waiting.result().is_success
    assert not server.service.tokenizing._taken


def test_a_prompt_over_the_context(server: Running) -> None:
    found = server.post("/v1/completions", {"prompt": "a" * 2048})
    error = found.json()["error"]
    assert (found.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["param"] == "prompt"
    body = {"prompt": "a" * 2045, "max_tokens": 50, "ignore_eos": True}
    whole = server.post("/v1/completions", body).json()
    assert whole["usage"]["completion_tokens"] == 3
    assert whole["choices"][0]["finish_reason"] == "length"


def test_paths_and_methods(server: Running) -> None:
    assert server.get("/v1/nothing").status_code == 404
    assert server.get("/v1/completions").status_code == 405
    assert server.get("/v1/models/other").json()["error"]["code"] == "model_not_found"
    assert server.client().models.list().data[0].id == "tiny"
    assert server.client().models.retrieve("tiny").owned_by == "draftwood"
    assert server.get("/v1/models/").json() == server.get("/v1/models").json()


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
        (None, 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonl", 415),
    ],
)
def test_bodies_are_json_by_their_type(server: Running, kind: str | None, status: int) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    body = b'{"prompt": "a", "max_tokens": 1}'
    found = httpx.post(f"{server.url}/completions", content=body, headers=headers)
    assert found.status_code == status
    if status != 200:
        assert "send JSON with the header" in found.json()["error"]["message"]


@pytest.mark.parametrize("origins", [("https://one.example",), ("*",), ()])
def test_pages_of_other_origins(origins: tuple[str, ...]) -> None:
    asked = {
        "Origin": "https://one.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    with running(tiny_engine("ar"), api_keys=("key",), allowed_origins=origins) as server:
        before = httpx.options(f"{server.url}/chat/completions", headers=asked)
        assert before.is_success == bool(origins)
        key = {"Origin": "https://one.example", "Authorization": "Bearer key"}
        found = server.get("/v1/models", headers=key)
        allowed = {"https://one.example", "*"} if origins else {None}
        assert found.status_code == 200
        assert found.headers.get("access-control-allow-origin") in allowed
        refused = server.get("/v1/models", headers={"Origin": "https://one.example"})
        assert refused.status_code == 401
        assert refused.headers.get("access-control-allow-origin") in allowed
        other = server.get("/v1/models", headers=key | {"Origin": "https://two.example"})
        told = other.headers.get("access-control-allow-origin")
        assert told == ("*" if origins == ("*",) else None)


def test_a_full_server_refuses_a_request_before_its_body() -> None:
    with running(tiny_engine("ar"), most=1) as server:
        with server.service.room.of(1):
            found = server.post("/v1/completions", content=b"no JSON")
        assert found.status_code == 429
        assert server.post("/v1/completions", content=b"no JSON").status_code == 400


def test_a_body_over_the_limit() -> None:
    with running(tiny_engine("ar"), max_body=1000) as server:
        body = b'{"prompt": "' + b"a" * 2000 + b'"}'
        found = server.post("/v1/completions", content=body)
        assert (found.status_code, found.json()["error"]["code"]) == (413, "too_large")
        chunked = server.post("/v1/completions", content=iter([body[:800], body[800:]]))
        assert chunked.status_code == 413
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).is_success


def test_keys() -> None:
    with running(tiny_engine("ar"), api_keys=("one", "two")) as server:
        assert server.get("/health").status_code == 200
        assert server.get("/metrics").status_code == 200
        for headers in ({}, {"Authorization": "Bearer three"}, {"Authorization": "Basic one"}):
            found = server.get("/v1/models", headers=headers)
            assert found.status_code == 401
            assert found.headers["www-authenticate"] == "Bearer"
        with pytest.raises(openai.AuthenticationError):
            server.client("three").models.list()
        assert server.client("two").models.list().data


def test_every_response_has_an_id(server: Running) -> None:
    made = server.get("/v1/models").headers["x-request-id"]
    assert len(made) == 32
    named = server.post(
        "/v1/completions", {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "mine-7"}
    )
    assert named.headers["x-request-id"] == "mine-7"
    assert named.json()["id"] == "cmpl-mine-7"
    bad = server.post("/v1/completions", {}, headers={"X-Request-Id": "a b"})
    assert bad.status_code == 400
    assert bad.headers["x-request-id"] not in ("", "a b")


def test_tokens(server: Running) -> None:
    found = server.post("/tokenize", {"prompt": "héé", "return_token_strs": True}).json()
    assert found["count"] == 5
    assert found["max_model_len"] == 2048
    assert len(found["token_strs"]) == 5
    text = server.post("/detokenize", {"tokens": found["tokens"]}).json()
    assert text == {"prompt": "héé"}
    for body in ({}, {"prompt": "a", "messages": []}):
        assert server.post("/tokenize", body).status_code == 400
    assert server.post("/detokenize", {"tokens": [260]}).status_code == 400
    of_messages = {"tools": [], "chat_template_kwargs": {}, "add_generation_prompt": True}
    for field, value in of_messages.items():
        error = server.post("/tokenize", {"prompt": "a", field: value}).json()["error"]
        assert error["param"] == field
        assert "needs messages" in error["message"]


def test_a_model_without_a_chat_template() -> None:
    chat = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 2}
    with running(tiny_engine("ar", tokenizer=tiny_tokenizer(chat=False))) as server:
        found = server.post("/v1/chat/completions", chat)
        assert found.status_code == 400
        assert "--chat-template" in found.json()["error"]["message"]
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).is_success
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ raise_exception('no') }}"
    with running(tiny_engine("ar"), template=template) as server:
        found = server.post("/v1/chat/completions", chat)
        assert found.status_code == 400
        assert "does not take this conversation: no" in found.json()["error"]["message"]


def test_more_choices_than_the_server_holds() -> None:
    with running(tiny_engine("ar", max_batch=2), most=3) as server:
        found = server.post("/v1/completions", {"prompt": "a", "n": 4, "max_tokens": 1})
        assert found.status_code == 400
        assert "at most 3" in found.json()["error"]["message"]
        many = server.post("/v1/completions", {"prompt": ["a"] * 100_000, "max_tokens": 1})
        assert "100000 choices" in many.json()["error"]["message"]


def test_an_error_inside_the_server_is_the_servers(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    def counted() -> float:
        name = 'http_requests_total{handler="/v1/completions",method="POST",status="5xx"} '
        lines = server.get("/metrics").text.splitlines()
        return sum(float(line[len(name) :]) for line in lines if line.startswith(name))

    before = counted()
    monkeypatch.setattr("draftwood.server.service.requests_of", broken)
    headers = {"X-Request-Id": "mine-8"}
    found: httpx.Response = server.post("/v1/completions", {"prompt": "a"}, headers=headers)
    assert found.status_code == 500
    assert found.json()["error"]["type"] == "server_error"
    assert found.headers["x-request-id"] == "mine-8"
    assert counted() == before + 1


def test_what_needs_no_key_below_a_path_of_another_application() -> None:
    given = ServeSettings(("tiny",), "tiny", 64, api_keys=("key",))
    service = started(tiny_engine("ar"), given, most=None)
    app = Starlette(routes=[Mount("/llm", application(service))])

    async def statuses(*paths: str) -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return [(await client.get(path)).status_code for path in paths]

    paths = ("/llm/health", "/llm/metrics", "/llm/", "/llm/page/main.js", "/llm/v1/models")
    found = asyncio.run(statuses(*paths))
    service.close()
    assert found == [200, 200, 200, 200, 401]
