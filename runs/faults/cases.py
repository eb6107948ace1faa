"""The faults that a running server is put through; each returns what it saw."""

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from runs.faults.asking import GREEDY, Tally, client_of
from runs.faults.bombs import BOMBS
from runs.faults.server import Server
from runs.faults.texts import LONG, SHORT, Text

_STREAM = """
import http.client, json, sys
host, port, body = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port))
connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
response = connection.getresponse()
response.readline()
print("begun", flush=True)
while response.readline(): pass
"""
"""A client that says when its stream has begun."""

_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "half a body": b'{"prompt": "a"',
    "not JSON": b"prompt=a",
    "a list": b"[1, 2]",
    "wrong types": b'{"prompt": "a", "max_tokens": "many"}',
    "no prompt": b'{"prompt": null}',
    "unknown field": b'{"prompt": "a", "max_token": 4}',
    "huge number": b'{"prompt": "a", "temperature": 1' + b"0" * 4000 + b"}",
    "NaN": b'{"prompt": "a", "temperature": NaN}',
    "invalid UTF-8": b'{"prompt": "\xff\xfe"}',
    "half a surrogate": b'{"prompt": "\\ud800"}',
    "deep lists": b'{"prompt": ' + b"[" * 500_000 + b"]" * 500_000 + b"}",
    "deep objects": b'{"logit_bias": ' + b'{"a":' * 500_000 + b"1" + b"}" * 500_000 + b"}",
    "many prompts": json.dumps({"prompt": ["a"] * 200_000}).encode(),
    "many ids": json.dumps({"prompt": [5] * 1_000_000}).encode(),
    "over the limit": b'{"prompt": "' + b"a" * (9 << 20) + b'"}',
    "far over the limit": b'{"prompt": "' + b"a" * (64 << 20) + b'"}',
}


async def killed_clients(server: Server, texts: list[Text], size: int) -> tuple[Tally, Any]:
    """Clients that are killed in the middle of their streams, beside some that are not."""
    tally, host = Tally(), server.address
    body = json.dumps({"prompt": texts[0].prompt, "max_tokens": 1500, "stream": True} | GREEDY)
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", _STREAM, host[0], str(host[1]), body],
            stdout=subprocess.PIPE,
        )
        for _ in range(size)
    ]
    async with client_of(server.url) as client:
        others = [
            asyncio.create_task(tally.ask(client, text, LONG, stream=True)) for text in texts[:4]
        ]
        for each in clients:
            assert each.stdout is not None
            await asyncio.to_thread(each.stdout.readline)
        running = (await asyncio.to_thread(server.figures))["num_requests_running"]
        began = time.monotonic()
        for each in clients:
            os.kill(each.pid, signal.SIGKILL)
            each.wait()
        await asyncio.gather(*others)
    freed = await asyncio.to_thread(server.idle)
    seconds = round(time.monotonic() - began, 1)
    return tally, {"killed": size, "running_then": running, "free_after_seconds": seconds * freed}


async def half_open(server: Server, texts: list[Text], size: int) -> tuple[Tally, Any]:
    """Connections that send nothing, half of a request's headers, or half of its body."""
    tally = Tally()
    parts = (
        b"",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-",
        b"GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /hea",
    )
    held, before = [], server.files()
    for part in itertools.islice(itertools.cycle(parts), size):
        try:
            held.append(socket.create_connection(server.address, timeout=20))
            held[-1].sendall(part)
        except OSError:
            break
    opened, began = len(held), time.monotonic()
    async with client_of(server.url) as client:
        await asyncio.gather(*(tally.ask(client, text, SHORT) for text in texts))
        closed = None
        while closed is None and time.monotonic() - began < 120:
            await asyncio.sleep(1)
            if server.files() < before + 20:
                closed = round(time.monotonic() - began, 1)
            await tally.ask(client, texts[0], SHORT)
    for each in held:
        each.close()
    return tally, {"opened": opened, "asked_for": size, "closed_after_seconds": closed}


async def bodies(server: Server, texts: list[Text], _: int) -> tuple[Tally, Any]:
    """Bodies that are no requests, some of them huge."""
    tally, worst, wrong = Tally(), 0.0, []
    begin = server.memory()
    async with client_of(server.url) as client:
        for name, body in _BODIES.items():
            server.reset()
            before = sum(tally.errors.values())
            await tally.post(client, body)
            if name == "far over the limit" and tally.unanswered:
                # The server answers and closes before all is sent, which clients may not see.
                tally.unanswered, tally.errors["closed"] = 0, 1
            wrong += [name] * (sum(tally.errors.values()) == before)
            worst = max(worst, server.memory("VmHWM") - begin)
            await tally.ask(client, texts[0], SHORT)
    found = {"bodies": len(_BODIES), "taken": wrong, "memory_at_most_more_mb": round(worst, 1)}
    return tally, found | {"within": worst < 300 and max(tally.seconds) < 5}


async def bombs(server: Server, texts: list[Text], _: int) -> tuple[Tally, Any]:
    """Grammars that are made to take long, while normal requests go on."""
    tally, others, ended = Tally(), Tally(), asyncio.Event()
    rows: dict[str, Any] = {}

    async def normal(client: Any) -> None:
        for text in itertools.cycle(texts):
            if ended.is_set():
                break
            await others.ask(client, text, SHORT)

    async with client_of(server.url) as client:
        first = {"structured_outputs": {"regex": "a+"}}
        await tally.post(client, {"prompt": "a", "max_tokens": 2} | first)
        beside = asyncio.create_task(normal(client))
        for name, fields in BOMBS.items():
            begin = server.memory()
            server.reset()
            body = {"prompt": "a", "max_tokens": 2, "structured_outputs": fields()}
            got = await tally.post(client, body)
            rows[name] = {
                "status": "200" if got else "refused",
                "seconds": round(tally.seconds[-1], 2),
                "more_mb": round(server.memory("VmHWM") - begin, 1),
                "says": "" if got else tally.said[:100],
            }
        ended.set()
        await beside
    memory = max(row["more_mb"] for row in rows.values())
    found = {"bombs": rows, "others": others.figures(), "memory_at_most_more_mb": memory}
    within = memory < 200 and max(row["seconds"] for row in rows.values()) < 2
    return merged(tally, [others]), found | {"within": within}


async def over_the_context(server: Server, texts: list[Text], _: int) -> tuple[Tally, Any]:
    """A prompt longer than the context, as text and as ids."""
    tally = Tally()
    async with client_of(server.url) as client:
        await tally.post(client, {"prompt": "word " * 100_000, "max_tokens": 4})
        await tally.post(client, {"prompt": [5] * 100_000, "max_tokens": 4})
        await tally.ask(client, texts[0], SHORT)
    return tally, {"within": tally.errors == {"400": 2} and max(tally.seconds) < 5}


async def long_run(server: Server, texts: list[Text], size: int) -> tuple[Tally, Any]:
    """Many short requests, 16 at once; memory after a fifth of them and at the end."""
    tally, waiting = Tally(), iter(range(size))
    memory: list[float] = []

    async def worker(client: Any) -> None:
        for number in waiting:
            await tally.ask(client, texts[number % len(texts)], SHORT)
            if number == size // 5:
                memory.append(server.memory())

    async with client_of(server.url) as client:
        await asyncio.gather(*(worker(client) for _ in range(16)))
    memory.append(server.memory())
    grown = round(memory[-1] - memory[0], 1)
    found = {"memory_after_a_fifth_mb": memory[0], "at_the_end_mb": memory[-1], "grown_mb": grown}
    return tally, found | {"within": grown < 20}


def merged(tally: Tally, others: Iterable[Tally]) -> Tally:
    """One count of several."""
    for each in others:
        tally.sent += each.sent
        tally.answered += each.answered
        tally.errors += each.errors
        tally.unanswered += each.unanswered
        tally.foreign += each.foreign
        tally.seconds += each.seconds
    return tally
