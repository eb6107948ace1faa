"""The script that harms servers: what counts as an answer, and one run of it with small numbers."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import draftwood
from draftwood import Engine, Request
from runs.faults import texts as prompts
from runs.faults.asking import Tally, client_of, error_in, streamed
from runs.faults.texts import LONG, Text
from tests.factories.running_server import running

ROOT = Path(__file__).parents[2]
TEXT = Text("a", {4: "bcde"})
WHOLE = json.dumps({"choices": [{"text": "bcde"}]})
ERROR = json.dumps({"error": {"message": "no"}})
CHUNKS = "".join(f"data: {json.dumps({'choices': [{'text': t}]})}\n\n" for t in ("bc", "de"))
DONE = "data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("status", "body", "stream", "counts"),
    [
        (200, WHOLE, False, {"answered": 1}),
        (200, json.dumps({"choices": [{"text": "other"}]}), False, {"answered": 1, "foreign": 1}),
        (400, ERROR, False, {"errors": {"400": 1}}),
        (400, "no", False, {"unanswered": 1}),
        (200, CHUNKS + DONE, True, {"answered": 1}),
        (200, CHUNKS, True, {"unanswered": 1}),
        (200, CHUNKS + f"data: {ERROR}\n\n{DONE}", True, {"errors": {"200": 1}}),
    ],
)
def test_what_became_of_a_request(
    status: int, body: str, stream: bool, counts: dict[str, object]
) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text=body, request=request)

    async def asked() -> Tally:
        tally, transport = Tally(), httpx.MockTransport(respond)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            await tally.ask(client, TEXT, 4, stream=stream)
        return tally

    found = asyncio.run(asked()).figures()
    del found["slowest_seconds"]
    expected = {"answered": 0, "errors": {}, "unanswered": 0, "foreign": 0}
    assert found == {"sent": 1, **expected, **counts}


def test_a_connection_that_breaks_is_no_answer() -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("gone", request=request)

    async def asked() -> Tally:
        tally, transport = Tally(), httpx.MockTransport(broken)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            await tally.ask(client, TEXT, 4)
        return tally

    assert asyncio.run(asked()).unanswered == 1


def test_events() -> None:
    assert streamed(CHUNKS + DONE) == "bcde"
    assert error_in(ERROR) == "no"
    assert error_in(WHOLE) == error_in("") == ""


def test_answers_go_on_behind_an_end_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked to ignore it; if plain decoding did not, the answer would be foreign."""
    monkeypatch.setattr(prompts, "_SUBJECTS", ("garden",))
    monkeypatch.setattr(prompts, "_BEGINNINGS", ("A {} is",))
    [text] = prompts.texts(1)
    model, tokenizer = draftwood.embedded()
    engine = Engine(model, "goose", tokenizer)
    [done] = engine.generate([Request(text.prompt, LONG)])
    assert done.reason == "eos", "this prompt's answer has no end token: take another one"
    tally = Tally()

    async def asked(url: str) -> None:
        async with client_of(url) as client:
            await tally.ask(client, text, LONG)
            await tally.ask(client, text, LONG, stream=True)

    with running(engine, eos=engine.target.info.eos) as server:
        asyncio.run(asked(server.root))
    assert (tally.answered, tally.foreign) == (2, 0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_small_run_passes() -> None:
    cases = ["killed_clients", "bodies", "over_the_context", "full_queue", "failing_model"]
    command = [sys.executable, "runs/server_faults.py", *(f"--only={name}" for name in cases)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == cases
    assert {each["verdict"] for each in found.values()} == {"passed"}
    assert all(not each["unanswered"] and not each["foreign"] for each in found.values())
