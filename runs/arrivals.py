"""Requests to a server that arrive by a Poisson process, and the events that it streams."""

import asyncio
import json
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

R = TypeVar("R")
A = TypeVar("A")


async def answered(
    requests: Iterable[R],
    ask: Callable[[R], Awaitable[A]],
    concurrency: int,
    rate: float,
    draw: random.Random,
    seconds: float = math.inf,
) -> list[A]:
    """The answers to all requests that were sent within so many seconds, in their order.

    Args:
        requests: in the order of their arrival.
        ask: sends one and reads its answer.
        concurrency: most requests at once; one that arrives beyond that waits here.
        rate: arrivals a second; 0: a place never stays free.
        draw: times of arrival.
        seconds: in which requests are sent.
    """
    places = asyncio.Semaphore(concurrency)
    asked: list[asyncio.Task[A]] = []

    async def one(request: R) -> A:
        try:
            return await ask(request)
        finally:
            places.release()

    end = time.perf_counter() + seconds
    for request in requests:
        if rate:
            await asyncio.sleep(draw.expovariate(rate))
        await places.acquire()
        if time.perf_counter() >= end:
            break
        asked.append(asyncio.create_task(one(request)))
    return await asyncio.gather(*asked)


def event(line: str) -> dict[str, Any] | None:
    """The event of a line of a stream; None if it has none, or the stream's end."""
    data = line.removeprefix("data:").strip()
    if not line.startswith("data:") or data == "[DONE]":
        return None
    found: dict[str, Any] = json.loads(data)
    return found
