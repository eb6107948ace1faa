"""Cancelling, the queue, failures of the engine, draining, and the end of a server."""

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest

from draftwood.engine.engine import Engine
from tests.factories.running_server import Running, running, tiny_engine

LONG: dict[str, Any] = {"prompt": "abc", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}


class Gate:
    """Holds an engine's steps back while it is closed, and makes them fail on demand."""

    def __init__(self, engine: Engine) -> None:
        self.open = threading.Event()
        self.open.set()
        self.error: Exception | None = None
        target: Any = engine.target
        submit = target.submit

        def gated(*args: Any, **named: Any) -> Any:
            assert self.open.wait(30)
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            return submit(*args, **named)

        target.submit = gated


def until(what: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def in_background(function: Callable[[], Any]) -> Callable[[], Any]:
    """Start a call on a thread; returns what waits for its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()

    def result() -> Any:
        thread.join(60)
        return found[0]

    return result


@pytest.fixture
def gated() -> Iterator[tuple[Running, Gate]]:
    """A server that decodes two requests at once and holds three."""
    engine = tiny_engine("goose:budget=8", max_batch=2)
    gate = Gate(engine)
    with running(engine, most=3) as server:
        yield server, gate
        gate.open.set()


def aborted(server: Running) -> float:
    """Choices that a client did not wait for."""
    page = server.get("/metrics").text
    name = 'draftwood:request_success_total{finished_reason="abort",model_name="tiny"} '
    return sum(float(line[len(name) :]) for line in page.splitlines() if line.startswith(name))


def test_a_client_that_leaves_a_stream_frees_its_place(server: Running) -> None:
    stream = server.client().completions.create(model="tiny", stream=True, **LONG_OPENAI)
    next(iter(stream))
    assert server.service.thread.held == 1
    stream.close()
    until(lambda: server.service.thread.held == 0, 10)
    assert not server.service.thread.engine.busy
    assert aborted(server) == 1


LONG_OPENAI: dict[str, Any] = {k: v for k, v in LONG.items() if k != "ignore_eos"} | {
    "extra_body": {"ignore_eos": True}
}


def test_a_client_that_does_not_wait_for_its_answer_frees_its_place(
    gated: tuple[Running, Gate],
) -> None:
    server, gate = gated
    gate.open.clear()
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{server.url}/completions", json=LONG, timeout=0.5)
    gate.open.set()
    assert server.idle()
    assert aborted(server) == 1


def test_all_choices_of_a_client_that_leaves_end(gated: tuple[Running, Gate]) -> None:
    server, _ = gated
    body = LONG | {"n": 3, "stream": True}
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=30) as stream:
        lines = stream.iter_lines()  # held: an iterator that is dropped closes the connection
        assert next(lines)
        assert server.service.thread.held == 3
    assert server.idle()
    assert aborted(server) == 3


def test_a_full_queue_is_429(gated: tuple[Running, Gate]) -> None:
    server, gate = gated
    gate.open.clear()
    waiting = [
        in_background(lambda: server.post("/v1/completions", LONG | {"max_tokens": 5}))
        for _ in range(3)
    ]
    until(lambda: server.service.thread.held == 3)
    found = server.post("/v1/completions", LONG)
    assert found.status_code == 429
    assert found.headers["retry-after"] == "1"
    assert found.json()["error"]["code"] == "queue_full"
    with pytest.raises(openai.RateLimitError):
        server.client().completions.create(model="tiny", prompt="a")
    health = server.get("/health").json()
    assert health["running"] + health["waiting"] == 3
    gate.open.set()
    assert [each().status_code for each in waiting] == [200] * 3
    assert server.post("/v1/completions", LONG | {"max_tokens": 5}).is_success


@contextmanager
def held_up(server: Running, worker: str) -> Iterator[None]:
    """Keep the thread of a server busy that makes tokens of prompts, or compiles grammars."""
    service, end = server.service, threading.Event()
    thread = service.text._worker if worker == "text" else service.compiling
    thread.submit(end.wait, 30)
    try:
        yield
    finally:
        end.set()


SHORT: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "abc"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "abc"}]},
}
FORM: dict[str, Any] = {"max_tokens": 9, "structured_outputs": {"regex": "[a-c]{3}"}}


@pytest.mark.parametrize("path", SHORT)
@pytest.mark.parametrize("worker", ["text", "grammars"])
def test_a_full_queue_is_429_before_work_is_spent(
    gated: tuple[Running, Gate], worker: str, path: str
) -> None:
    pytest.importorskip("llguidance")
    server, _ = gated
    body = SHORT[path] | FORM
    with held_up(server, worker):
        waiting = [in_background(lambda: server.post(path, body)) for _ in range(3)]
        until(lambda: server.service.room.preparing == 3)
        assert server.service.thread.held == 0
        found = server.post(path, body)
        assert (found.status_code, found.json()["error"]["code"]) == (429, "queue_full")
    assert [each().status_code for each in waiting] == [200] * 3
    assert server.service.room.preparing == 0


@pytest.mark.parametrize("path", SHORT)
@pytest.mark.parametrize("worker", ["text", "grammars"])
def test_a_client_that_leaves_early_frees_its_place(
    gated: tuple[Running, Gate], worker: str, path: str
) -> None:
    pytest.importorskip("llguidance")
    server, _ = gated
    with held_up(server, worker):
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{server.root}{path}", json=SHORT[path] | FORM, timeout=0.5)
        until(lambda: server.service.room.preparing == 0)
    assert server.service.thread.held == 0


def test_a_step_that_fails_ends_its_requests_alone(gated: tuple[Running, Gate]) -> None:
    server, gate = gated
    gate.open.clear()
    short = LONG | {"max_tokens": 6}
    first = in_background(lambda: server.post("/v1/completions", short))
    until(lambda: server.service.thread.engine.running == 1)
    streamed = in_background(lambda: server.post("/v1/completions", short | {"stream": True}))
    until(lambda: server.service.thread.held == 2)
    gate.error = RuntimeError("the device is out of memory")
    gate.open.set()
    failed = first()
    assert failed.status_code == 500
    assert "the device is out of memory" in failed.json()["error"]["message"]
    assert failed.json()["error"]["type"] == "server_error"
    other = streamed()
    assert other.status_code == 200
    assert '"finish_reason":"length"' in other.text
    again = server.post("/v1/completions", short)
    assert again.is_success
    assert server.get("/health").status_code == 200
    assert 'draftwood:num_failed_steps_total{model_name="tiny"} 1.0' in server.get("/metrics").text


def test_an_error_in_the_middle_of_a_stream_is_an_event(
    gated: tuple[Running, Gate], caplog: pytest.LogCaptureFixture
) -> None:
    server, gate = gated
    events: list[str] = []
    body = LONG | {"stream": True}
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=30) as stream:
        for line in stream.iter_lines():
            if line:
                events.append(line)
            if len(events) == 2:
                gate.error = RuntimeError("no more")
    *_, error, done = events
    assert done == "data: [DONE]"
    found = json.loads(error.removeprefix("data: "))
    assert found["error"]["message"] == "the request failed: RuntimeError: no more"
    assert "a request failed: RuntimeError: no more" in caplog.messages


def test_a_server_whose_engine_has_died_ends(gated: tuple[Running, Gate]) -> None:
    server, gate = gated
    gate.open.clear()
    waits = in_background(lambda: server.post("/v1/completions", LONG))
    until(lambda: server.service.thread.engine.running == 1)

    def broken(event: object) -> None:
        raise MemoryError("the loop is broken")

    server.service.thread._report = broken  # type: ignore[method-assign]
    gate.open.set()
    assert waits().status_code == 503
    server.thread.join(20)
    assert not server.thread.is_alive()
    assert server.server.engine_died
    with pytest.raises(httpx.ConnectError):
        server.get("/health")


def test_until_it_ends_it_takes_no_requests(gated: tuple[Running, Gate]) -> None:
    """What a client sees between the death of the engine and the end of the process."""
    server, gate = gated

    async def inattentive(_counter: int) -> bool:
        return server.server.should_exit

    server.server.on_tick = inattentive  # type: ignore[method-assign, assignment]
    gate.open.clear()
    waits = in_background(lambda: server.post("/v1/completions", LONG))
    until(lambda: server.service.thread.engine.running == 1)

    def broken(event: object) -> None:
        raise MemoryError("the loop is broken")

    server.service.thread._report = broken  # type: ignore[method-assign]
    gate.open.set()
    assert waits().status_code == 503
    until(lambda: not server.service.thread.alive)
    found = server.get("/health")
    assert (found.status_code, found.json()["status"]) == (503, "dead")
    refused = server.post("/v1/completions", LONG)
    assert refused.status_code == 503
    assert "the loop is broken" in refused.json()["error"]["message"]


def test_a_signal_drains_the_server(gated: tuple[Running, Gate]) -> None:
    server, gate = gated
    gate.open.clear()
    held = in_background(lambda: server.post("/v1/completions", LONG | {"max_tokens": 9}))
    until(lambda: server.service.thread.held == 1)
    server.server.handle_exit(signal.SIGTERM, None)
    until(lambda: server.service.thread.draining)
    refused = server.post("/v1/completions", LONG)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
    assert server.get("/health").json()["status"] == "stopping"
    gate.open.set()
    found = held()
    assert found.status_code == 200
    assert found.json()["usage"]["completion_tokens"] == 9
    server.thread.join(20)
    assert not server.thread.is_alive()
    with pytest.raises(httpx.ConnectError):
        server.get("/health")


def test_a_second_signal_stops_at_once(gated: tuple[Running, Gate]) -> None:
    server, _ = gated
    with httpx.stream(
        "POST", f"{server.url}/completions", json=LONG | {"stream": True}, timeout=30
    ) as stream:
        lines = stream.iter_lines()  # held: an iterator that is dropped closes the connection
        assert next(lines)
        server.server.handle_exit(signal.SIGTERM, None)
        server.server.handle_exit(signal.SIGTERM, None)
        server.thread.join(20)
        assert not server.thread.is_alive()


def test_a_second_signal_ends_the_wait_for_clients() -> None:
    """No request is held any more, and one connection goes on."""
    with running(tiny_engine("ar")) as server:
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port or 80), timeout=30) as client:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
            client.sendall(head + b"Content-Type: application/json\r\n\r\n{")
            until(lambda: len(server.server.server_state.tasks) == 1)
            server.server.handle_exit(signal.SIGTERM, None)
            until(lambda: server.server.should_exit)
            server.thread.join(1)
            assert server.thread.is_alive()
            server.server.handle_exit(signal.SIGTERM, None)
            server.thread.join(5)
            assert not server.thread.is_alive()
