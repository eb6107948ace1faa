"""Servers of different abilities: what they lack is not checked; what is wrong is said first."""

import json
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint import client as client_module
from draftwood.lab.endpoint.checks._common import Size
from draftwood.lab.endpoint.client import Client, Failed, Limit, Refused
from draftwood.lab.endpoint.curl import curl
from draftwood.lab.endpoint.plan import checked_plan, plan
from draftwood.lab.endpoint.prompts import BUILT_IN
from draftwood.lab.endpoint.report import document, markdown, passed, verdict
from draftwood.lab.endpoint.result import Asked, Result
from draftwood.lab.endpoint.run import Report, Target, run
from draftwood.lab.endpoint.server import Server
from draftwood.lab.endpoint.speculation import Counters, drafting
from draftwood.lab.endpoint.tolerance import tolerance
from tests.factories.toy_server import Faults, Toy, serving
from tests.lab.endpoint.runs import checked, lines, outcomes, settings, wanted

OPTIONAL = (
    *("top_k", "min_p", "repetition_penalty", "repeat_penalty", "seed", "logit_bias", "n"),
    *("presence_penalty", "stop"),
)


def test_fields_that_are_refused_are_not_checked() -> None:
    toy = Toy(refused=OPTIONAL)
    report = checked(toy, settings(samples=60))
    found = outcomes(report)
    assert not {"failed", "undecided"} & set(found), lines(report)
    assert {"logit_bias", "n", "seeds"} <= found["not checked"]
    words = {each.subject: each.text for each in report.results if each.outcome == "not checked"}
    assert "unknown field stop" in words["a stop string of 3 characters"]
    assert "status 400" in words["greedy"]
    assert "(all tokens)" in lines(report)


def test_a_server_of_chats_alone() -> None:
    report = checked(Toy(chat=True), settings(samples=100))
    assert not {"failed", "undecided"} & set(outcomes(report)), lines(report)
    broken = checked(Toy(Faults(wrong=9, drops=True), chat=True))
    assert {"greedy", "streaming"} <= outcomes(broken)["failed"]


def test_without_log_probabilities_a_difference_is_undecided() -> None:
    report = checked(Toy(Faults(rounds=0.3), tops=None))
    assert "greedy" in outcomes(report)["undecided"]
    assert "failed" not in outcomes(report)
    assert not passed(report.results)
    assert verdict(report.results).startswith("undecided: ")


def test_a_second_server_is_the_reference() -> None:
    with serving(Toy(Faults(wrong=9), owner="vllm")) as url, serving(Toy(owner="vllm")) as plain:
        report = run(wanted(url, settings(), reference=Target(plain)))
        assert "greedy" in outcomes(report)["failed"]
        # Of these two, the reference speculates as well as it says, so it is no reference.
        assert outcomes(report)["undecided"] >= {"speculation"}
        assert plain in report.reference
    first = next(each for each in report.results if each.check == "greedy")
    assert [request.url.startswith(url) for request in first.requests] == [True, False]


def test_without_a_reference_nothing_is_asked() -> None:
    toy = Toy(owner="vllm")
    with (
        serving(toy) as url,
        pytest.raises(DraftwoodError, match=r"no reference: vllm 1\.2 has no"),
    ):
        run(wanted(url, settings()))
    assert not toy.bodies


def test_the_switch_can_be_given() -> None:
    toy = Toy(owner="somebody")
    report = checked(toy, plain={"speculate": False, "extra": 1})
    assert outcomes(report)["passed"] >= {"greedy"}
    assert "undecided" not in outcomes(report)
    marked = [body for body in toy.bodies if "extra" in body]
    assert marked
    assert all(body["speculate"] is False for body in marked)


def test_a_key_is_sent_and_never_shown() -> None:
    toy = Toy(Faults(wrong=9), key="secret-key")
    with serving(toy) as url:
        with pytest.raises(DraftwoodError, match="another key") as error:
            run(wanted(url, settings()))
        assert "--api-key" in str(error.value)
        with pytest.raises(DraftwoodError, match="another key") as error:
            run(wanted(url, settings(), endpoint=Target(url, "secret")))
        assert "secret" not in str(error.value), "though the server's answer has it"
        report = run(wanted(url, settings(), endpoint=Target(url, "secret-key")))
    text = markdown(report) + str(document(report))
    assert "$OPENAI_API_KEY" in text
    assert "secret-key" not in text


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DraftwoodError, match=r"no server answers: http://127\.0"):
        run(wanted(f"http://127.0.0.1:{port}", settings()))


def test_a_page_that_is_no_api() -> None:
    with serving(Toy()) as url, pytest.raises(DraftwoodError, match="is no list of models"):
        run(wanted(url.replace("/v1", "/other"), settings()))
    with serving(Toy()) as url, pytest.raises(DraftwoodError, match="404, no model x"):
        run(wanted(url, settings(), endpoint=Target(url, model="x")))
    with serving(Toy(refused=("model",))) as url, pytest.raises(DraftwoodError, match="no request"):
        run(wanted(url, settings()))


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http://a:b"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(DraftwoodError, match="no URL"):
        Client(url, None, 1.0, Limit(1))


def test_a_password_is_not_shown() -> None:
    client = Client("http://user:word@127.0.0.1:9", None, 1.0, Limit(5))
    assert client.url == "http://127.0.0.1:9/v1"
    with pytest.raises(Failed) as error:
        client.get("/models")
    assert "word" not in str(error.value)
    client.close()


class Flaky:
    """A server that is busy a few times; the responses that it gives are counted."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)

    def toy(self) -> Toy:
        flaky = self

        class Busy(Toy):
            async def _complete(self, request: Any) -> Any:
                from starlette.responses import JSONResponse

                if flaky.statuses:
                    status = flaky.statuses.pop(0)
                    return JSONResponse({"detail": "busy"}, status, {"Retry-After": "0.01"})
                return await super()._complete(request)

        return Busy()


def asked(url: str, most: int = 50) -> tuple[Client, Server]:
    client = Client(url, None, 10.0, Limit(most))
    return client, Server(client, "toy")


def test_a_busy_server_is_asked_again_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    body: Mapping[str, Any] = {"model": "toy", "prompt": "the", "max_tokens": 1}
    with serving(Flaky(429, 503).toy()) as url:
        limit = Limit(50)
        client = Client(url, None, 10.0, limit)
        assert client.post("/completions", body)["choices"]
        assert limit.sent == 3
        client.close()
    with serving(Flaky(429, 429, 429).toy()) as url:
        client = Client(url, None, 10.0, Limit(50))
        with pytest.raises(Failed, match="status 429, busy"):
            client.post("/completions", body)
        client.close()
    with serving(Flaky(422).toy()) as url:
        client = Client(url, None, 10.0, Limit(50))
        with pytest.raises(Refused, match="status 422, busy"):
            client.post("/completions", body)
        client.close()


def test_no_more_requests_than_are_allowed_are_sent() -> None:
    with serving(Toy()) as url:
        client, server = asked(url, 2)
        with pytest.raises(DraftwoodError, match="2 requests were sent"):
            assert server.abilities
        client.close()


def test_a_server_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", None, 0.2, Limit(9))
        with pytest.raises(Failed, match="no answer in time"):
            client.post("/completions", {})
        client.close()


@contextmanager
def trickling(seconds: float) -> Iterator[str]:
    """The URL of a server that sends an answer byte by byte; every read of it is quick."""
    ended = threading.Event()

    def serve(bound: socket.socket) -> None:
        connection, _ = bound.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
            while not ended.wait(seconds):
                connection.sendall(b" ")

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        thread = threading.Thread(target=serve, args=(bound,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(30)


@pytest.mark.parametrize("how", ["post", "stream", "get"])
def test_the_time_limit_is_of_the_whole_answer(how: str) -> None:
    with trickling(0.02) as url:
        client = Client(url, None, 0.5, Limit(9))
        begun = time.monotonic()
        content: list[Mapping[str, Any]] = [] if how == "get" else [{}]
        with pytest.raises(Failed, match="in time"):
            getattr(client, how)("/completions", *content)
        assert time.monotonic() - begun < 30, "200 s if only reads are limited"
        client.close()


def test_the_plan_is_an_upper_bound() -> None:
    toy = Toy(Faults(wrong=5, one=True, leaks=True, seedless=True, plain_too=True))
    report = checked(toy, settings(samples=40))
    assert report.sent <= report.planned.requests
    generated = sum(body["max_tokens"] * body.get("n", 1) for body in toy.bodies)
    assert generated <= report.planned.tokens
    size = Size(prompts=len(BUILT_IN), samples=300, sides=2)
    assert plan(size).requests < 1000, "the default of --max-requests allows the default plan"
    with pytest.raises(DraftwoodError, match="up to 713 requests, and --max-requests is 50"):
        checked_plan(size, 50)


def test_a_tolerance_for_each_dtype() -> None:
    assert tolerance(None, "auto").value == tolerance(None, "bfloat16").value == 0.625
    assert "assumed" in str(tolerance(None, "auto"))
    assert tolerance(None, "float32").value == 1e-4
    assert tolerance(None, "float16").value == pytest.approx(0.078, abs=1e-3)
    assert tolerance(0.5, "int8").value == 0.5
    for given, dtype in ((None, "int8"), (-1.0, "auto"), (float("nan"), "auto")):
        with pytest.raises(DraftwoodError):
            tolerance(given, dtype)


def test_a_curl_command_quotes_its_body() -> None:
    asked = Asked("http://h/v1/completions", {"prompt": 'it\'s "so"\n', "n": 1})
    text = curl(asked)
    assert text.startswith("curl http://h/v1/completions -H 'Content-Type: application/json' -d '")
    assert json.loads(shlex.split(text)[-1]) == asked.body


def test_drafts_as_metrics_tell_them() -> None:
    with serving(Toy()) as url:
        client, server = asked(url)
        before, after = Counters(10, 5), Counters(30, 12)
        found = drafting(server, server, before, after)
        assert found.text == "7 of 20 drafted tokens were accepted, as the server's metrics say"
        none = drafting(server, server, after, after)
        assert (none.outcome, "show little" in none.text) == ("note", True)
        silent = drafting(server, server, Counters(), Counters())
        assert "does not say" in silent.text
        client.close()


def test_markdown_keeps_its_rows() -> None:
    report = checked(Toy(Faults(wrong=9)))
    report.results.append(Result("x", "a|b", "failed", "two\nlines <b>"))
    text = markdown(report)
    assert "| **FAIL** | x, a\\|b | two lines &lt;b> |" in text
    assert "To see it by hand (greedy, first):" in text
    assert text.count("curl ") == 2
    assert "draftwood 1.2" in text
    rows = [row for row in text.splitlines() if row.startswith("| **FAIL** | greedy")]
    assert len(rows) == 2


def test_nothing_that_was_checked_is_no_success() -> None:
    skipped = [Result("n", "", "not checked", "x"), Result("seeds", "", "note", "x")]
    assert not passed(skipped)
    assert verdict(skipped) == "nothing was checked"
    assert client_module.RETRIES == 2


class Ending(Toy):
    """Answers so many requests, and all later ones with status 401."""

    status, every = 401, 0

    async def _complete(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        self.bodies.append({"sent": True})
        sent = sum("sent" in body for body in self.bodies)
        if sent % self.every == 0 if self.every else sent > 40:
            return JSONResponse({"detail": "no"}, self.status, {"Retry-After": "0.001"})
        return await super()._complete(request)


class Full(Ending):
    """Is busy at every second request."""

    status, every = 429, 2


def unfinished(report: Report) -> set[str]:
    return {each.check for each in report.results if each.unfinished}


def test_a_key_that_is_no_longer_taken_leaves_the_rest_undecided() -> None:
    report = checked(Ending(), settings(samples=20))
    assert "distribution" in unfinished(report), lines(report)
    assert "greedy" in outcomes(report)["passed"]
    assert not passed(report.results)
    assert verdict(report.results).endswith(" were not finished")
    assert "needs another key" in lines(report)


def test_a_busy_server_that_uses_up_the_limit_leaves_the_rest_undecided() -> None:
    most = plan(Size(2, 60, 2)).requests
    report = checked(Full(), settings(samples=60, concurrency=1), most=most)
    assert report.sent == most, lines(report)
    assert unfinished(report) == {"distribution"} == outcomes(report)["undecided"], lines(report)
    assert not passed(report.results)
    assert "retries included, and no more are allowed: raise --max-requests" in lines(report)
