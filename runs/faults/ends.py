"""Faults that need a server of their own: little memory, a full queue, a signal, a bad model."""

import asyncio
import threading
from typing import Any

import draftwood
from draftwood import Engine
from draftwood.server.run import Server as HttpServer
from draftwood.server.run import bound_socket, serve, url_of
from draftwood.server.service import started
from draftwood.server.settings import ServeSettings
from runs.faults.asking import Tally, client_of
from runs.faults.server import Server
from runs.faults.texts import LONG, SHORT, Text


async def little_memory(server: Server, texts: list[Text], size: int) -> tuple[Tally, Any]:
    """More tokens than memory holds are refused; others wait for it."""
    tally = Tally()
    async with client_of(server.url) as client:
        whole = {"prompt": texts[0].prompt, "max_tokens": 2000, "temperature": 0}
        await tally.post(client, whole)
        refused = dict(tally.errors)
        await asyncio.gather(*(tally.ask(client, text, LONG) for text in texts[:size]))
    return tally, {"within": refused == {"400": 1} and tally.answered == len(texts[:size])}


async def full_queue(server: Server, texts: list[Text], size: int) -> tuple[Tally, Any]:
    """More requests than the server holds get 429; those that it holds end."""
    tally = Tally()
    async with client_of(server.url, 4 * size) as client:
        asked = [tally.ask(client, texts[i % len(texts)], LONG) for i in range(4 * size)]
        await asyncio.gather(*asked)
    return tally, {"within": tally.answered >= size and tally.errors["429"] > 0}


async def terminated(server: Server, texts: list[Text], size: int) -> tuple[Tally, Any]:
    """SIGTERM under load: what runs ends, what comes later gets 503."""
    tally, later = Tally(), Tally()
    async with client_of(server.url) as client:
        asked = [
            asyncio.create_task(tally.ask(client, texts[i % len(texts)], LONG, stream=i % 2 == 0))
            for i in range(size)
        ]
        while (await asyncio.to_thread(server.figures))["num_requests_running"] < min(size, 4):
            await asyncio.sleep(0.1)
        stopping = asyncio.create_task(asyncio.to_thread(server.stop, 200))
        await asyncio.sleep(0.5)
        async with client_of(server.url) as second:
            await later.ask(second, texts[0], SHORT)
        await asyncio.gather(*asked)
        seconds = await stopping
    code = server.process.returncode
    found = {"later": later.figures(), "exit_seconds": seconds, "exit_code": code}
    return tally, found | {"within": seconds is not None and tally.answered == size}


async def failing_model(_: None, texts: list[Text], size: int) -> tuple[Tally, Any]:
    """The model raises in the middle of a step, in a server of this process."""
    model, tokenizer = draftwood.embedded()
    engine = Engine(model, "auto", tokenizer, max_batch=size)
    target: Any = engine.target
    submit, forwards = target.submit, 0

    def failing(*args: Any, **named: Any) -> Any:
        nonlocal forwards
        forwards += 1
        if forwards == 30:
            raise RuntimeError("the device is lost")
        return submit(*args, **named)

    target.submit = failing
    settings = ServeSettings(("embedded",), "embedded", engine.target.info.context_limit)
    service = started(engine, settings, most=4 * size)
    bound, ready = bound_socket("127.0.0.1", 0), threading.Event()
    http = HttpServer(service, started=ready.set)
    url = url_of(bound).removesuffix("/v1")
    thread = threading.Thread(target=serve, args=(http, service, bound))
    thread.start()
    await asyncio.to_thread(ready.wait, 60)
    tally, later = Tally(), Tally()
    async with client_of(url) as client:
        asked = (tally.ask(client, texts[i % len(texts)], LONG) for i in range(size))
        await asyncio.gather(*asked)
        await asyncio.gather(*(later.ask(client, text, SHORT) for text in texts[:size]))
        health = (await client.get("/health")).json()
    http.should_exit = True
    await asyncio.to_thread(thread.join, 60)
    found = {"later": later.figures(), "health": health}
    fine = tally.errors["500"] > 0 and later.answered == len(texts[:size]) and not later.foreign
    return tally, found | {"within": fine and health["status"] == "ok"}
