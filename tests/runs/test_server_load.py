"""The load on a server: what counts as text, the figures, how many requests run at once."""

import asyncio
import itertools
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from runs.server_load import (
    Answer,
    Server,
    Slice,
    alone,
    ask,
    content,
    figures,
    hashes,
    of_round,
    quantiles,
    run,
    speed,
    warm_up,
)


def test_the_text_of_an_event() -> None:
    assert content('data: {"choices": [{"delta": {"content": "Hi"}}]}') == "Hi"
    assert content('data: {"choices": [{"delta": {"role": "assistant"}}]}') == ""
    assert content('data: {"choices": [], "usage": {"total_tokens": 3}}') == ""
    assert content('data: {"choices": [{"delta": {"content": null}}]}') == ""
    assert content("data: [DONE]") == content("") == content(": ping") == ""


def test_the_figures() -> None:
    answers = [
        Answer(1.0, [1.5, 1.7, 2.0], "abc"),
        Answer(1.0, [2.0, 3.0], "ab"),
        Answer(2.0, error="429: busy"),
    ]
    first = Slice(1.0, answers, 0.02, None)
    found: Any = figures([first], [[[1] * 6, [1, 2], []]])
    assert found["repeated_8grams"] == 0.0
    assert (found["requests"], found["finished"], found["tokens"]) == (3, 2, 8)
    assert found["errors"] == ["429: busy"]
    assert found["tokens_per_second"] == 4.0  # 8 tokens from 1.0 to 3.0
    assert found["first_token"]["p50"] == 0.75
    assert found["gap"]["p50"] == 0.3
    assert found["time_per_token"]["p50"] == 0.55  # of 0.1 and 1.0
    assert quantiles([]) == {"p50": None, "p99": None}
    assert speed([], [], 0.0) == 0.0


def test_the_figures_of_several_rounds() -> None:
    loop = [1, 2, 3, 4, 5, 6, 7, 8] * 2
    rounds = [Slice(at, [Answer(at, [at + 1, at + 4], "a")], at / 100, None) for at in (0.0, 8.0)]
    found: Any = figures([*rounds, Slice(9.0, [], 0.0, None)], [[loop], [[1, 2]], []])
    assert found["of_rounds"] == [4.0, 0.5, 0.0]
    assert found["tokens_per_second"] == 0.5
    assert found["repeated_8grams"] == 1 / 9
    assert found["client_share"] == 0.0267
    assert (found["requests"], found["first_token"]["p99"]) == (2, 1.0)


def test_answers_have_the_numbers_of_their_prompts() -> None:
    answers = [Answer(0.0, [1.0], text) for text in ("a", "b", "c", "a")]
    answers[1].error = "500"
    found = hashes([answers[:3], answers[3:]], 5)
    assert found.keys() == {0, 2, 5}
    assert found[0] == found[5] == hashes([[Answer(0.0, [], "a")]], 1)[0]


def test_no_prompt_comes_twice() -> None:
    prompts = [*range(7)]
    for turn in (0, 1):
        found: list[int] = []
        with pytest.raises(click.ClickException, match=r"vllm was sent all 3 prompts.*LIMIT"):
            found.extend(of_round(prompts, turn, 2, "vllm"))
        assert found == [3 * turn, 3 * turn + 1, 3 * turn + 2]


def test_a_server_that_is_through_with_its_prompts_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached(monkeypatch, Served())
    six: list[dict[str, object]] = [{"model": "m"}] * 6
    bodies = of_round(six, 0, 2, "s")
    with pytest.raises(click.ClickException, match="give more prompts"):
        asyncio.run(run("http://server", bodies, 2, 0.0, 60.0))


def test_the_other_servers_are_stopped() -> None:
    processes = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(3)]
    servers = [Server(str(i), "", "", "", each.pid, {}) for i, each in enumerate(processes)]

    def states() -> list[str]:
        stat = [Path(f"/proc/{each.pid}/stat").read_text() for each in processes]
        return [text.rpartition(")")[2].split()[0] for text in stat]

    try:
        with alone(servers[1], servers):
            while states().count("T") < 2:
                time.sleep(0.01)
            assert states()[1] != "T"
        while "T" in states():
            time.sleep(0.01)
    finally:
        for each in processes:
            each.kill()
            each.wait()


class Served(httpx.AsyncBaseTransport):
    """A server that streams two chunks to each request, and counts those that run at once."""

    def __init__(self) -> None:
        self.running = self.most = self.requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        lines = "".join(
            f'data: {{"choices": [{{"delta": {{"content": "{t}"}}}}]}}\n\n' for t in "ab"
        )
        return httpx.Response(200, text=lines + "data: [DONE]\n\n", request=request)


def reached(monkeypatch: pytest.MonkeyPatch, transport: httpx.AsyncBaseTransport) -> None:
    """Let all clients reach this server."""
    client = partial(httpx.AsyncClient, transport=transport)
    monkeypatch.setattr(httpx, "AsyncClient", lambda base_url, **_: client(base_url=base_url))


def test_no_more_requests_run_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served()
    reached(monkeypatch, served)
    answers = asyncio.run(run("http://server", itertools.repeat({"model": "m"}), 3, 0.0, 0.2))
    assert served.most == 3
    assert served.requests == len(answers) > 6
    assert {a.text for a in answers} == {"ab"}
    assert not any(a.error for a in answers)
    slow = asyncio.run(run("http://server", itertools.repeat({"model": "m"}), 3, 10.0, 0.2))
    assert len(slow) <= 4, "about two arrive in that time"


def test_a_server_is_warmed_up_by_as_many_requests_as_it_will_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server("s", "http://server", "m", "software", 0, {})
    served = Served()
    with monkeypatch.context() as patched:
        reached(patched, served)
        warm_up(server, 3)
    assert served.requests == served.most == 3

    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500, text="out of memory", request=request)

    reached(monkeypatch, httpx.MockTransport(refuse))
    with pytest.raises(click.ClickException, match=r"s did not answer: 500.*out of memory"):
        warm_up(server, 3)


def test_a_refusal_is_an_error() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(429, text="too many", request=request)

    async def asked() -> Answer:
        client = httpx.AsyncClient(transport=httpx.MockTransport(refuse), base_url="http://server")
        async with client:
            return await ask(client, {})

    answer = asyncio.run(asked())
    assert answer.error.startswith("429")
    assert answer.chunks == []
