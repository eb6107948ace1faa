"""``draftwood serve`` from its command line to its end by a signal, and what it refuses."""

import gc
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.factories.command_line import refused, run


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Client(threading.Thread):
    """Asks a server once it is up, then ends this process's server by a signal."""

    def __init__(self, port: int, template: str) -> None:
        super().__init__(daemon=True)
        self.root = f"http://127.0.0.1:{port}"
        self.template = template
        self.found: dict[str, Any] = {}

    def run(self) -> None:
        try:
            self._ask()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _ask(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                httpx.get(f"{self.root}/health").raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(0.05)
        key = {"Authorization": "Bearer secret"}
        body = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 400}
        for name, answer in (
            ("models", httpx.get(f"{self.root}/v1/models", headers=key)),
            ("refused", httpx.get(f"{self.root}/v1/models")),
            ("chat", httpx.post(f"{self.root}/v1/chat/completions", headers=key, json=body)),
            (
                "tokens",
                httpx.post(
                    f"{self.root}/tokenize", headers=key, json={"messages": body["messages"]}
                ),
            ),
            ("metrics", httpx.get(f"{self.root}/metrics")),
        ):
            self.found[name] = answer


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach the main one"
)
def test_serve_until_a_signal(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}", encoding="utf-8")
    monkeypatch.setenv("DRAFTWOOD_API_KEY", "secret")
    port = free_port()
    client = Client(port, str(template))
    client.start()
    argv = ["serve", checkpoint, "--port", str(port), "--method", "goose", "--budget", "7"]
    argv += ["--served-model-name", "tiny", "--served-model-name", "small"]
    argv += ["--chat-template", str(template), "--metrics-names", "vllm"]
    argv += ["--max-model-len", "40", "--max-batch", "2", "--memory", "1GB"]
    code, out, err = run(*argv)
    client.join(10)
    assert (code, out) == (0, "")
    assert f"tiny, small at http://127.0.0.1:{port}/v1 with a key, decoded by goose" in err
    assert f"see its drafts: http://127.0.0.1:{port}/\n" in err
    found = client.found
    names = [(each["id"], each["max_model_len"]) for each in found["models"].json()["data"]]
    assert names == [("tiny", 40), ("small", 40)]
    assert found["refused"].status_code == 401
    assert found["tokens"].json()["count"] == len("[abc]")
    chat = found["chat"].json()
    assert chat["usage"]["total_tokens"] <= 40
    assert chat["choices"][0]["speculative_decoding_stats"]["num_spec_tokens"] == 7
    assert "vllm:generation_tokens_total" in found["metrics"].text


def test_a_port_that_is_taken_is_refused(checkpoint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = refused("serve", checkpoint, "--port", port)
    assert f"cannot listen at 127.0.0.1, port {port}: Address already in use" in message
    assert "port 0 is any that is free" in message


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--memory", "much"], "memory is 'much'"),
        (["--api-key", ""], "an API key is empty"),
        (["--allowed-origin", "https://chat.example/"], "'https://chat.example/' is no origin"),
        (["--prefix-cache", "much"], "prefix_cache is 'much'"),
        (["--chat-template", "/nowhere/x.jinja"], "cannot read the chat template: No such file"),
        (["--max-model-len", "300", "--port", "0"], "the model's context holds 256"),
        (["--method", "gose"], "did you mean 'goose'?"),
        (["--host", "no.such.host.invalid"], "cannot listen at no.such.host.invalid"),
    ],
)
def test_refusals(checkpoint: str, argv: list[str], words: str) -> None:
    assert words in refused("serve", checkpoint, *argv)


def test_the_memory_of_the_cache_hides_no_setting_of_the_memory(
    checkpoint: str, tmp_path: Path
) -> None:
    """--memory is an option of the command, and memory a source."""
    argv = ["--also", "memory", "--memory", "8GB", "--memory.file", str(tmp_path), "--port", "0"]
    assert "No such option" not in (said := refused("serve", checkpoint, *argv))
    assert str(tmp_path) in said, "it is a directory"


def test_a_missing_package_is_named(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgspec", None)
    message = refused("serve", checkpoint)
    assert "this needs msgspec" in message
    assert "pip install 'draftwood[serve]'" in message


def test_a_model_is_needed() -> None:
    assert "Missing argument 'MODEL'" in refused("serve")


def test_an_engine_that_dies_ends_the_process_with_1(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []

    def died(_server: Any, service: Any, _bound: Any) -> int:
        frozen.append(gc.get_freeze_count())
        service.close()
        return 1

    monkeypatch.setattr("draftwood.server.run.serve", died)
    code, _, err = run("serve", checkpoint, "--port", str(free_port()))
    assert (code, err) == (1, "")
    assert frozen[0] > gc.get_freeze_count()
