"""Many different requests at once have the tokens that each has alone, decoded plainly."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from draftwood import models
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.sampling.params import SamplingParams
from tests.factories.running_server import EOS, Running, running

MIXED: list[dict[str, Any]] = [
    {
        "prompt": ("abc " * (1 + i % 5)) + chr(97 + i % 26),
        "max_tokens": 8 + (i * 7) % 25,
        "seed": i,
        "temperature": (0, 0.7, 1.0, 1.3)[i % 4],
        "top_p": (1.0, 0.9)[i % 2],
        **({"repetition_penalty": 1.2} if i % 5 == 0 else {}),
        **({"frequency_penalty": 0.4} if i % 7 == 0 else {}),
        **({"stop": ["b"]} if i % 6 == 0 else {}),
        **({"min_tokens": 4} if i % 9 == 0 else {}),
        **({"logprobs": 1} if i % 4 == 1 else {}),
        **({"speculate": False} if i % 11 == 0 else {}),
        "stream": i % 3 == 0,
    }
    for i in range(40)
]


def test_forty_requests_at_once_have_the_tokens_of_each_alone(
    server: Running, plain: Engine
) -> None:
    for body, text in zip(MIXED, _texts(server), strict=True):
        assert text == _alone(plain, body, EOS), body


@pytest.mark.slow
def test_forty_requests_to_a_model_that_drafting_pays_for() -> None:
    loaded = models.load("embedded")
    plain = Engine(loaded.model, "ar", loaded.tokenizer)
    engine = Engine(loaded.model, "auto", loaded.tokenizer, max_batch=8, prefix_cache="50MB")
    with running(engine, eos=loaded.eos) as server:
        for body, text in zip(MIXED, _texts(server), strict=True):
            assert text == _alone(plain, body, loaded.eos), body
        page = server.get("/metrics").text
    name = 'draftwood:spec_decode_num_accepted_tokens_total{model_name="tiny"} '
    assert any(float(line[len(name) :]) for line in page.splitlines() if line.startswith(name))


def _texts(server: Running) -> list[str]:
    """Answers to the requests, eight of which are under way at any time."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda body: _text(server.post("/v1/completions", body)), MIXED))


def _text(found: httpx.Response) -> str:
    assert found.status_code == 200, found.text
    if not found.headers["content-type"].startswith("text/event-stream"):
        return str(found.json()["choices"][0]["text"])
    lines = [line.removeprefix("data: ") for line in found.text.split("\n\n")[:-2]]
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


def _alone(plain: Engine, body: dict[str, Any], eos: frozenset[int]) -> str:
    names = ("seed", "temperature", "top_p", "repetition_penalty", "frequency_penalty")
    sampling = SamplingParams(**{name: body[name] for name in names if name in body})
    request = Request(
        body["prompt"],
        body["max_tokens"],
        sampling,
        eos=eos,
        stop=tuple(body.get("stop", ())),
        min_new_tokens=body.get("min_tokens", 0),
    )
    [found] = plain.generate([request])
    return found.text
