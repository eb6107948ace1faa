"""``/v1/chat/completions`` as OpenAI's client and Open WebUI use it."""

import json
import threading
from typing import Any

import httpx
import openai
import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.request import Event, Request
from draftwood.sampling.sampler import SamplingParams
from tests.factories.running_server import EOS, Running

MESSAGES: list[Any] = [
    {"role": "user", "content": "abc abc abc"},
    {"role": "assistant", "content": "abc abc"},
    {"role": "user", "content": "abc abc"},
]
PROMPT = "User: abc abc abc\n\nAssistant: abc abc\n\nUser: abc abc\n\nAssistant:"


def answer(plain: Engine, tokens: int) -> str:
    [found] = plain.generate([Request(PROMPT, tokens, eos=EOS)])
    return found.text


def test_an_answer(server: Running, plain: Engine) -> None:
    found = server.client().chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=20, temperature=0
    )
    [choice] = found.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == answer(plain, 20)
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "length"
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(PROMPT)
    assert found.id.startswith("chatcmpl-")
    assert found.object == "chat.completion"


def test_choices_are_sampled_with_consecutive_seeds(server: Running, plain: Engine) -> None:
    found = server.client().chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=24, n=3, temperature=1.5, seed=11
    )
    requests = [Request(PROMPT, 24, SamplingParams(1.5, seed=11 + i), eos=EOS) for i in range(3)]
    expected = [each.text for each in plain.generate(requests)]
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    assert [choice.message.content for choice in found.choices] == expected
    assert len(set(expected)) == 3
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(PROMPT)


def test_a_stream_has_the_same_text_and_one_end(server: Running, plain: Engine) -> None:
    chunks = list(
        server.client().chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_completion_tokens=30,
            temperature=0,
            n=2,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *others, last = chunks
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 60
    assert all(chunk.usage is None for chunk in others)
    assert len({chunk.id for chunk in chunks}) == 1
    for index in range(2):
        own = [c for chunk in others for c in chunk.choices if c.index == index]
        assert [c.delta.role for c in own] == ["assistant"] + [None] * (len(own) - 1)
        assert "".join(c.delta.content or "" for c in own) == answer(plain, 30)
        assert [c.finish_reason for c in own] == [None] * (len(own) - 1) + ["length"]
        assert own[-1].model_extra is not None
        assert "speculative_decoding_stats" in own[-1].model_extra
        assert not any("speculative_decoding_stats" in (c.model_extra or {}) for c in own[:-1])
    assert len(others) < 60, "a step's tokens come in one chunk"


def test_a_stream_begins_with_the_first_token(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first chunk clients measure how long they have waited."""
    goes_on, step = threading.Event(), Engine.step

    def waiting(engine: Engine) -> list[Event]:
        assert goes_on.wait(30)
        return step(engine)

    monkeypatch.setattr(Engine, "step", waiting)
    body = {"messages": MESSAGES, "max_tokens": 3, "stream": True}
    with httpx.stream("POST", f"{server.url}/chat/completions", json=body, timeout=60) as found:
        assert found.status_code == 200, "the engine has taken it"
        threading.Timer(0.3, goes_on.set).start()
        lines = found.iter_lines()
        first = next(lines)
        assert goes_on.is_set()
        assert '"role":"assistant"' in first
        assert [*lines][-2:] == ["data: [DONE]", ""]


def test_messages_come_back_as_clients_keep_them(server: Running) -> None:
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 5, "temperature": 0}
    chat = server.client().chat.completions
    [text] = {choice.message.content for choice in chat.create(messages=MESSAGES, **asked).choices}
    assert text
    asked["stop"] = text[-1]
    message: Any = chat.parse(messages=MESSAGES, **asked).choices[0].message
    assert "parsed" in message.model_dump(exclude_unset=True)
    again: Any = {"role": "user", "content": "abc"}
    found = chat.create(messages=[*MESSAGES, message, again], **asked)
    told: Any = {"role": "assistant", "content": message.content}
    assert chat.create(messages=[*MESSAGES, told, again], **asked).usage == found.usage
    lite = {**told, "provider_specific_fields": {"refusal": None}}
    body = {"messages": [*MESSAGES, lite, again], "max_tokens": 5}
    assert server.post("/v1/chat/completions", body).status_code == 200


def test_the_stream_on_the_wire(server: Running) -> None:
    body = {"messages": MESSAGES, "max_tokens": 3, "temperature": 0, "stream": True}
    found = server.post("/v1/chat/completions", body)
    assert found.headers["content-type"].startswith("text/event-stream")
    lines = found.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert all("usage" not in chunk for chunk in chunks), "nobody asked for it"


def test_every_chunk_may_have_the_usage_so_far(server: Running) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"messages": MESSAGES, "max_tokens": 9, "temperature": 0, "stream": True}
    found = server.post("/v1/chat/completions", body | {"stream_options": options})
    chunks = [json.loads(line.removeprefix("data: ")) for line in found.text.split("\n\n")[:-2]]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == 9
    assert len(set(counts)) > 2


def test_logprobs(server: Running, plain: Engine) -> None:
    create = server.client().chat.completions.create
    ask: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 10}
    ask |= {"temperature": 0, "logprobs": True, "top_logprobs": 2}
    found = create(**ask).choices[0].logprobs
    assert found is not None
    assert found.content is not None
    [expected] = plain.generate([Request(PROMPT, 10, eos=EOS, logprobs=2)])
    assert [each.logprob for each in found.content] == pytest.approx(
        [each.logprob for each in expected.logprobs], abs=1e-4
    )
    said = bytes(byte for each in found.content for byte in each.bytes or ())
    assert said.decode("utf-8", "replace") == expected.text
    for each in found.content:
        assert len(each.top_logprobs) == 2
        assert each.top_logprobs[0].token == each.token
    streamed = [
        each
        for chunk in create(**ask, stream=True)
        if chunk.choices[0].logprobs
        for each in chunk.choices[0].logprobs.content or ()
    ]
    assert streamed == found.content


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"stream_options": {"include_usage": True}, "user": "someone"},
        {"max_tokens": 8, "temperature": 0.7, "top_p": 0.9, "stop": ["###"], "seed": 3},
        {"frequency_penalty": 0.1, "presence_penalty": 0.1, "repeat": None},
        {"tools": None, "tool_choice": "none", "response_format": {"type": "text"}},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "abc"}]}]},
        {"messages": [{"role": "system", "content": "Be brief."}, *MESSAGES]},
        {
            "messages": [
                MESSAGES[0],
                {"role": "assistant", "content": "x", "refusal": None, "annotations": []}
                | {"audio": None, "function_call": None, "tool_calls": None},
                MESSAGES[2],
            ]
        },
    ],
)
def test_requests_like_those_of_chat_programs(server: Running, extra: dict[str, Any]) -> None:
    body = {"model": "tiny", "messages": MESSAGES, "stream": True, "max_tokens": 4, **extra}
    found = server.post("/v1/chat/completions", {k: v for k, v in body.items() if k != "repeat"})
    assert found.status_code == 200, found.text
    assert found.text.endswith("data: [DONE]\n\n")
    assert '"error"' not in found.text


def test_parts_of_text_are_joined_by_line_breaks(server: Running) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ids = [
        server.post("/tokenize", {"messages": [{"role": "user", "content": each}]}).json()["tokens"]
        for each in (parts, "a\nb")
    ]
    assert ids[0] == ids[1]


def test_a_developer_is_the_system_of_a_template_that_knows_none(server: Running) -> None:
    body = {"messages": [{"role": "developer", "content": "Be brief."}, *MESSAGES]}
    tokens = server.post("/tokenize", body).json()["tokens"]
    text = server.post("/detokenize", {"tokens": tokens}).json()["prompt"]
    assert text == "Assistant: Be brief.\n\n" + PROMPT, "it names all but users so"


def test_no_likeliest_tokens_may_be_asked_for_without_log_probabilities(server: Running) -> None:
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 3, "top_logprobs": 0}
    answer = server.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["logprobs"] is None


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "template"),
    ({"tool_choice": "required"}, "tool_choice", "needs tools"),
    ({"response_format": {"type": "xml"}}, "response_format", "json_object"),
    ({"modalities": ["text", "audio"]}, "modalities", "text"),
    ({"functions": []}, "functions", "use `tools`"),
    ({"store": True}, "store", "nothing is stored"),
    ({"service_tier": "flex"}, "service_tier", "one tier"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, "enable_thinking", "template"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "template"),
    ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "0 to 20"),
    ({"top_logprobs": -1, "logprobs": True}, "top_logprobs", "0 to 20"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "needs stream"),
    ({"n": 0}, "n", "ask for 1 to 128"),
    ({"n": 2**31}, "n", "ask for 1 to 128"),
    ({"messages": []}, "messages", "at least one"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages", "king"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content of type 'image_url'",
        "text parts",
    ),
    *(
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", name: {}}]}]},
            f"messages[0].content[0].{name}",
            "text parts",
        )
        for name in ("image_url", "input_audio", "video_url", "file")
    ),
    (
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}
            ]
        },
        "messages[0].tool_calls",
        "does not read them",
    ),
    ({"top_k": 2, "temperature": -1}, "temperature", "temperature must be"),
    ({"max_tokens": 0}, "max_tokens", "at least 1"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "max_completion_tokens is 0"),
    ({"top_k": -2}, "top_k", "0 (off) or more"),
    ({"stop_token_ids": [260]}, "stop_token_ids", "token ids are 0 to 259"),
    ({"min_tokens": 9, "max_tokens": 5}, "min_tokens", "0 to 5"),
    ({"presence_penalty": 2.5}, "presence_penalty", "[-2, 2]"),
    ({"frequency_penalty": -1e300}, "frequency_penalty", "[-2, 2]"),
    ({"logit_bias": {"5": 1e300}}, "logit_bias", "[-100, 100]"),
    ({"logit_bias": {"999": 1}}, "logit_bias", "vocabulary ends at 259"),
    ({"top_kk": 2}, "top_kk", "did you mean 'top_k'?"),
    ({"flavour": 2}, "flavour", "no field is ignored"),
    ({"temperature": "hot"}, "temperature", "expected 'float | null', got 'str'"),
]


@pytest.mark.parametrize(("change", "field", "words"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(
    server: Running, change: dict[str, Any], field: str, words: str
) -> None:
    body = {"messages": MESSAGES, "max_tokens": 3, **change}
    found = server.post("/v1/chat/completions", body)
    error = found.json()["error"]
    assert found.status_code == 400
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    assert field in (error["param"] or error["message"])


def test_a_message_may_have_what_its_template_leaves_out(server: Running) -> None:
    plain = {"role": "tool", "content": "abc"}
    more = {"name": "f", "tool_call_id": "call-1", "reasoning_content": "so"}
    parts = [{"type": "text", "text": "abc", "image_url": None}]
    ids = [
        server.post("/tokenize", {"messages": [message]}).json()["tokens"]
        for message in (plain, plain | more, plain | {"content": parts})
    ]
    assert ids[0] == ids[1] == ids[2]


def test_openais_client_raises_its_own_errors(server: Running) -> None:
    client = server.client()
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=-1)
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
