"""The service of a loaded model, and the end of an application that another server runs."""

import asyncio
from queue import Queue
from typing import Any, cast

import pytest
from transformers import GenerationConfig

from draftwood.engine.request import Finished, Request
from draftwood.errors import DraftwoodError
from draftwood.models import Loaded
from draftwood.server.app import application
from draftwood.server.loaded import service_of
from tests.factories.running_server import EOS
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer


def loaded() -> Loaded:
    model, made = tiny_llama(), cast(Any, GenerationConfig)
    model.generation_config = made(temperature=0.6, top_k=20, max_new_tokens=33)
    return Loaded("tiny", model, tiny_tokenizer(), EOS)


def test_it_has_what_the_model_brings() -> None:
    service = service_of(loaded(), "ar", max_batch=2, max_queue=3)
    settings = service.settings
    assert (settings.names, settings.root) == (("tiny",), "tiny")
    assert settings.context == service.thread.engine.target.info.context_limit
    assert settings.sampling == {"temperature": 0.6, "top_k": 20}
    assert settings.max_tokens == 33
    assert service.eos == EOS
    assert service.thread.most == 5
    service.close()


@pytest.mark.parametrize("key", ["", " \n", "a b", "schlüssel"])
def test_a_key_that_no_client_can_send_is_refused(key: str) -> None:
    with pytest.raises(DraftwoodError, match="clients could not send it"):
        service_of(loaded(), "ar", api_keys=["right", key])


@pytest.mark.parametrize("name", ["api_keys", "allowed_origins"])
def test_a_text_is_no_list(name: str) -> None:
    given: dict[str, Any] = {name: "https://one.example"}
    with pytest.raises(DraftwoodError, match=f"{name} is a text"):
        service_of(loaded(), "ar", **given)


def test_it_has_what_it_is_told() -> None:
    service = service_of(
        loaded(),
        "ar",
        names=["one", "two"],
        template="{{ messages }}",
        api_keys=["key\n"],
        allowed_origins=["*"],
        max_model_len=50,
        max_body=1000,
        sampling_defaults="openai",
        metrics_names="vllm",
    )
    settings = service.settings
    assert (settings.names, settings.api_keys) == (("one", "two"), ("key",))
    assert settings.allowed_origins == ("*",)
    assert (settings.context, settings.max_body, settings.metrics_names) == (50, 1000, "vllm")
    assert (settings.sampling, settings.max_tokens) == ({}, None)
    assert service.text.template == "{{ messages }}"
    service.close()


@pytest.mark.parametrize(("given", "copied"), [({}, 38), ({"prefix_cache": 0}, 0)])
def test_later_prompts_begin_like_earlier_ones_by_default(given: Any, copied: int) -> None:
    service = service_of(loaded(), "ar", **given)
    done: Queue[Finished] = Queue()

    def told(_: int, event: object) -> None:
        if isinstance(event, Finished):
            done.put(event)

    for _ in range(2):
        service.thread.submit([Request(range(1, 40), 2)], told)
        done.get(timeout=60)
    service.close()
    assert service.thread.engine.prefix_tokens == (78, copied)


def test_more_than_the_context_is_refused() -> None:
    with pytest.raises(DraftwoodError, match="max_model_len is 10000000: the model's context"):
        service_of(loaded(), "ar", max_model_len=10_000_000)


def test_the_engine_stops_as_the_lifespan_ends() -> None:
    service = service_of(loaded(), "ar")
    app = application(service)

    async def run() -> None:
        async with app.router.lifespan_context(app):
            assert service.thread.alive

    asyncio.run(run())
    assert not service.thread.alive
