"""A server of a tiny model on the loopback, in a thread of this process."""

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

import httpx
import openai
import pytest
from transformers import PreTrainedTokenizerBase

from draftwood.engine.engine import Engine
from draftwood.server.parsing import MakeParser
from draftwood.server.run import Server, bound_socket, serve, url_of
from draftwood.server.service import Service, started
from draftwood.server.settings import ServeSettings
from draftwood.server.tools import CallForm
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

EOS = frozenset({256})


@dataclass(frozen=True, eq=False)
class Running:
    """A server and clients of it."""

    url: str
    service: Service
    server: Server
    thread: threading.Thread

    @property
    def root(self) -> str:
        """The URL without ``/v1``."""
        return self.url.removesuffix("/v1")

    def client(self, key: str = "none") -> openai.OpenAI:
        """OpenAI's own client, which tries once."""
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0, timeout=60)

    def post(self, path: str, body: Any = None, **named: Any) -> httpx.Response:
        """Post JSON, or ``content`` as it is, which is said to be JSON."""
        if body is None:
            named["headers"] = {"Content-Type": "application/json", **named.get("headers", {})}
        else:
            named["json"] = body
        return httpx.post(f"{self.root}{path}", timeout=60, **named)

    def get(self, path: str, **named: Any) -> httpx.Response:
        """Get a path."""
        return httpx.get(f"{self.root}{path}", timeout=60, **named)

    def idle(self, seconds: float = 20.0) -> bool:
        """Wait until no request is held; False if that takes too long."""
        end = time.monotonic() + seconds
        while self.service.thread.held or self.service.thread.engine.busy:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def tiny_engine(
    method: str = "auto",
    *,
    context: int = 2048,
    tokenizer: PreTrainedTokenizerBase | None = None,
    **named: Any,
) -> Engine:
    """An engine on a tiny Llama."""
    return Engine(tiny_llama(context=context), method, tokenizer or tiny_tokenizer(), **named)


@contextmanager
def running(
    engine: Engine,
    *,
    most: int | None = None,
    template: str | None = None,
    parser: MakeParser | None = None,
    tags: Collection[int] | None = None,
    call_form: CallForm | None = None,
    eos: frozenset[int] = EOS,
    **settings: Any,
) -> Iterator[Running]:
    """A server of an engine, until the end of the block."""
    given = ServeSettings(("tiny",), "tiny", engine.target.info.context_limit)
    given = replace(given, **settings)
    service = started(
        engine,
        given,
        most=most,
        template=template,
        parser=parser,
        tags=tags,
        call_form=call_form,
        eos=eos,
    )
    bound = bound_socket("127.0.0.1", 0)
    url, ready = url_of(bound), threading.Event()
    server = Server(service, started=ready.set)
    thread = threading.Thread(target=serve, args=(server, service, bound), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield Running(url, service, server, thread)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)
        assert not thread.is_alive()


def threads_of(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """The names of the threads that call a function, one for each call from now on.

    Args:
        monkeypatch: undoes it.
        name: of the function or method, with all before it.
    """
    function, threads = resolve_name(name), list[str]()

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return function(*given)

    monkeypatch.setattr(name, noted)
    return threads
