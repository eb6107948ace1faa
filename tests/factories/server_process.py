"""Servers that run in a process of their own."""

import subprocess
import time

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
