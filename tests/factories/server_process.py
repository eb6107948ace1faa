"""Servers that run in a process of their own."""

import subprocess
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx


def until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> bool:
    """Wait for a server; False if it has ended."""
    while process.poll() is None:
        try:
            if client.get("/health").status_code == 200:
                return True
        except httpx.TransportError:
            time.sleep(1)
    return False


def answers(
    client: httpx.Client, path: str, bodies: Iterable[Mapping[str, Any]], at_once: int = 8
) -> list[Any]:
    """The answers to requests, in their order; that many are sent at once."""
    with ThreadPoolExecutor(at_once) as pool:
        return [each.json() for each in pool.map(lambda body: client.post(path, json=body), bodies)]
