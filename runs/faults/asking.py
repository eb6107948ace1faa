"""Requests, and the count of what became of them."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from runs.faults.texts import Text

TIMEOUT = 240.0
"""Seconds after which a request counts as one without an answer."""


@dataclass
class Tally:
    """Requests sent; those that ended; errors by status; those that got nothing; foreign texts."""

    sent: int = 0
    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    foreign: int = 0
    seconds: list[float] = field(default_factory=list)
    said: str = ""  # the last error

    def figures(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "sent": self.sent,
            "answered": self.answered,
            "errors": dict(self.errors),
            "unanswered": self.unanswered,
            "foreign": self.foreign,
            "slowest_seconds": round(max(self.seconds, default=0.0), 2),
        }

    async def ask(
        self, client: httpx.AsyncClient, text: Text, tokens: int, *, stream: bool = False
    ) -> None:
        """Ask for the answer to a prompt, and compare it if it comes whole."""
        body = {"prompt": text.prompt, "max_tokens": tokens, "stream": stream} | GREEDY
        got = await self.post(client, body, stream=stream)
        if got is not None:
            found = streamed(got) if stream else json.loads(got)["choices"][0]["text"]
            self.foreign += found != text.answers[tokens]

    async def post(
        self, client: httpx.AsyncClient, body: Any, *, stream: bool = False
    ) -> str | None:
        """Send a body, JSON or bytes; the text of a response without an error."""
        self.sent += 1
        began = asyncio.get_running_loop().time()
        given = {"content": body} if isinstance(body, bytes) else {"json": body}
        said = {"Content-Type": "application/json"}
        try:
            got = await client.post("/v1/completions", headers=said, **given)
        except httpx.HTTPError:
            self.unanswered += 1
            return None
        self.seconds.append(asyncio.get_running_loop().time() - began)
        failed = error_in(got.text)
        if got.status_code == httpx.codes.OK and not failed:
            if stream and not got.text.endswith("data: [DONE]\n\n"):
                self.unanswered += 1
                return None
            self.answered += 1
            return got.text
        if failed:
            self.said = failed
            self.errors[str(got.status_code)] += 1
        else:
            self.unanswered += 1  # no error of the API's form
        return None


GREEDY = {"temperature": 0, "ignore_eos": True}


def client_of(url: str, connections: int = 100) -> httpx.AsyncClient:
    """A client of a server."""
    limits = httpx.Limits(max_connections=connections)
    return httpx.AsyncClient(base_url=url, timeout=TIMEOUT, limits=limits)


def streamed(events: str) -> str:
    """The text of a stream of completions."""
    datas = [line.removeprefix("data: ") for line in events.splitlines() if line]
    chunks = [json.loads(data) for data in datas if data != "[DONE]"]
    return "".join(each["text"] for chunk in chunks for each in chunk["choices"])


def error_in(got: str) -> str:
    """The message of an error in the API's form, of a body or at the end of a stream; else none."""
    for line in got.splitlines()[-4:] or [""]:
        try:
            found = json.loads(line.removeprefix("data: "))
        except ValueError:
            continue
        if isinstance(found, dict) and isinstance(found.get("error"), dict):
            return str(found["error"]["message"])
    return ""
