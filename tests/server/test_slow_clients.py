"""Clients that connect and do not go on: their connections end, and hold nobody else up."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from draftwood.server.run import LateRequests
from tests.factories.running_server import Running, running, tiny_engine

HALF_HEADERS = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-"
HALF_BODY = HALF_HEADERS + b'Length: 100\r\nContent-Type: application/json\r\n\r\n{"prompt"'
WHOLE = b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def impatient() -> Iterator[Running]:
    """A server that waits for nobody."""
    with running(tiny_engine("ar"), headers_within=0.5, body_within=0.5) as server:
        yield server


def connected(server: Running, sent: bytes) -> socket.socket:
    url = httpx.URL(server.url)
    found = socket.create_connection((url.host, url.port or 80), timeout=30)
    found.sendall(sent)
    return found


def received(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    with connection:
        while more := connection.recv(65536):
            found += more
    return found


@pytest.mark.parametrize("sent", [b"", b"G", HALF_HEADERS])
def test_a_connection_without_a_request_is_closed(impatient: Running, sent: bytes) -> None:
    assert received(connected(impatient, sent)) == b""


def test_half_of_a_second_request_is_closed(impatient: Running) -> None:
    connection = connected(impatient, WHOLE)
    assert b"200 OK" in connection.recv(65536)
    connection.sendall(b"GET /vers")
    assert b"HTTP/1.1" not in received(connection)


def test_an_idle_connection_between_requests_stays(impatient: Running) -> None:
    connection = connected(impatient, WHOLE)
    assert b"200 OK" in answered(connection)
    time.sleep(2.5)
    connection.sendall(WHOLE)
    assert b"200 OK" in answered(connection)
    connection.close()


def answered(connection: socket.socket) -> bytes:
    """A whole response: headers and body may come one after the other."""
    found = b""
    while not found.endswith(b"}"):
        more = connection.recv(65536)
        assert more, "the connection was closed"
        found += more
    return found


def test_half_of_a_body_is_408(impatient: Running) -> None:
    head, _, body = received(connected(impatient, HALF_BODY)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    assert b'"code":"timeout"' in body


def test_half_open_connections_hold_nobody_up(impatient: Running) -> None:
    held = [connected(impatient, HALF_HEADERS) for _ in range(50)]
    assert impatient.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).is_success
    assert [received(each) for each in held] == [b""] * 50


def test_the_time_begins_with_each_request() -> None:
    now = [0.0]
    late = LateRequests(30, clock=lambda: now[0])
    new: Any = SimpleNamespace(cycle=None, timeout_keep_alive_task=None)
    done: Any = SimpleNamespace(
        cycle=SimpleNamespace(response_complete=True), timeout_keep_alive_task=object()
    )
    busy: Any = SimpleNamespace(
        cycle=SimpleNamespace(response_complete=False), timeout_keep_alive_task=None
    )
    every = [Hashed(each) for each in (new, done, busy)]
    assert late.found(every) == []
    now[0] = 29
    done.timeout_keep_alive_task = None  # a part of a second request has come
    assert late.found(every) == []
    now[0] = 31
    assert late.found(every) == every[:1]
    now[0] = 58
    done.cycle = SimpleNamespace(response_complete=True)  # it was answered: a third one begins
    assert late.found(every) == every[:1]
    now[0] = 89
    assert late.found(every) == every[:2]
    assert late.found([]) == []


class Hashed:
    """A connection as a key, as uvicorn's are."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of files")
def test_a_server_may_open_as_many_files_as_the_system_allows() -> None:
    script = (
        "import resource as r; hard = r.getrlimit(r.RLIMIT_NOFILE)[1];"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, hard));"
        "from draftwood.server.run import raise_file_limit; raise_file_limit();"
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0] > 64)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"
